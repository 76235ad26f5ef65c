/* A sandbox that refuses what the heap asks for beyond plain mappings, from the program's first instruction on. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const struct { int call, error; } refused[] = {
    {SYS_rseq, ENOSYS}, {SYS_membarrier, ENOSYS}, {SYS_madvise, EPERM}, {SYS_mremap, EPERM}, {SYS_sched_getaffinity, EPERM},
    {SYS_getcpu, EPERM}, {SYS_getrandom, ENOSYS}, {SYS_sysinfo, EPERM}, {SYS_mincore, EPERM}, {SYS_prctl, EPERM},
};

static void into_the_sandbox(void) {
    struct sock_filter code[2 * COUNT(refused) + 2];
    unsigned short n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < COUNT(refused); i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i].call, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | refused[i].error);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, code};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program),
          "seccomp: errno %d", errno);
}

static void large_blocks(void) {
    for (int round = 0; round < 20; round++) {
        char *block = malloc(8 * MIB);
        CHECK(block, "8 MiB");
        memset(block, 0xee, 8 * MIB);
        errno = 31;
        free(block);
        CHECK(errno == 31, "free set errno to %d", errno);
        block = calloc(1, 8 * MIB);
        CHECK(block && is_zero(block, 8 * MIB), "calloc is not zero where madvise is refused");
        stamp(block, 100000, 4);
        block = realloc(block, 20 * MIB);
        check_stamp(block, 100000, 4);
        block = realloc(block, 40000);
        check_stamp(block, 40000, 4);
        free(block);
        malloc_trim(0);
    }
}

static void *work(void *seed) {
    for (int i = 0; i < 40; i++) churn((uintptr_t)seed, 100, i % 8 ? 50000 : 2000000);
    return NULL;
}

int main(int words, char **word) {
    alarm(60);
    if (words == 1) {
        into_the_sandbox();
        execl("/proc/self/exe", word[0], "inside", NULL);
        CHECK(0, "exec: errno %d", errno);
    }
    large_blocks();
    pthread_t thread[4];
    for (size_t i = 0; i < COUNT(thread); i++) CHECK(!pthread_create(&thread[i], NULL, work, (void *)(i + 1)),
          "pthread_create");
    for (size_t i = 0; i < COUNT(thread); i++) pthread_join(thread[i], NULL);
    pid_t pid = vfork();
    if (pid == 0) _exit(0);
    CHECK(outcome(pid) == 0, "vfork");
    CHECK(status_kib("VmHWM") < 300 * 1024, "%ld KiB were resident: freed memory is not used again", status_kib("VmHWM"));
    return 0;
}
