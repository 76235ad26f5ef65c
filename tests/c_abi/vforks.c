/* A child of `vfork` that allocates (many programs' do, though they must not) while other threads of its parent do the same.
   The children run in the parent's memory: a block with two owners shows in the stamps. */
#include "check.h"

extern pid_t __vfork(void);
static volatile int stop;

static void *busy(void *seed) {
    while (!stop) churn((uintptr_t)seed, 128, 3000);
    return NULL;
}

/* Registers and stack of the caller survive the child, which uses both. */
__attribute__((noinline)) static int child_work(int n) {
    char path[256];
    snprintf(path, sizeof path, "/nowhere/%d", n);
    for (int i = 0; i < 20; i++) churn(n + i, 64, 2000);
    free(malloc(100000));
    return path[9] - '0' + n % 10;
}

__attribute__((noinline)) static void one_round(int n) {
    volatile int guard[64];
    for (int i = 0; i < 64; i++) guard[i] = n + i;
    char *volatile block = malloc(500);
    stamp(block, 500, n);
    pid_t pid = n % 4 == 3 ? __vfork() : vfork();
    if (pid == 0) _exit(child_work(n) & 0x3f);
    CHECK(pid > 0, "vfork: errno %d", errno);
    int status = outcome(pid);
    CHECK(WIFEXITED(status), "a child of vfork ended with status %#x", status);
    for (int i = 0; i < 64; i++) CHECK(guard[i] == n + i, "the child damaged its parent's frame");
    check_stamp(block, 500, n);
    free(block);
}

static void runs_a_program(void) {
    char *const words[] = {"sh", "-c", "x=$(echo a b c); [ \"$x\" = 'a b c' ]", NULL};
    pid_t pid = vfork();
    if (pid == 0) {
        execv("/bin/sh", words);
        _exit(127);
    }
    int status = outcome(pid);
    CHECK(status == 0, "a program run from vfork ended with status %#x", status);
}

/* A child of a child: the first has no registration to give up any more. */
static void nested(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        pid_t inner = vfork();
        if (inner == 0) _exit(child_work(1) ? 5 : 6);
        int status;
        waitpid(inner, &status, 0);
        _exit(WIFEXITED(status) && WEXITSTATUS(status) == 5 ? 7 : 8);
    }
    int status = outcome(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "a child of a child ended with status %#x", status);
}

static void *forking(void *seed) {
    for (int n = 0; n < 150; n++) one_round((int)(uintptr_t)seed * 1000 + n);
    return NULL;
}

int main(void) {
    alarm(60);
    runs_a_program();
    nested();
    pthread_t thread[3], other;
    for (size_t i = 0; i < COUNT(thread); i++) CHECK(!pthread_create(&thread[i], NULL, busy, (void *)(i + 1)),
          "pthread_create");
    CHECK(!pthread_create(&other, NULL, forking, (void *)7), "pthread_create");
    for (int n = 0; n < 150; n++) one_round(n);
    pthread_join(other, NULL);
    for (int n = 0; n < 10; n++) runs_a_program();
    stop = 1;
    for (size_t i = 0; i < COUNT(thread); i++) pthread_join(thread[i], NULL);
    return 0;
}
