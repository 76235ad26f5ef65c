/* Calls before any constructor, in destructors, in a thread that is being torn down, and while the process exits. */
#include "check.h"

static char *early[200], *by_constructor;

static void before_constructors(int count, char **words, char **environment) {
    (void)count, (void)words, (void)environment;
    for (int i = 0; i < 200; i++) {
        size_t size = (size_t)i * i + 1;
        early[i] = i % 4 == 0 ? calloc(1, size) : i % 4 == 1 ? aligned_alloc(64, size) : malloc(size);
        if (i % 4 == 3) early[i] = realloc(early[i], size * 2);
        stamp(early[i], size, i);
    }
    for (int i = 0; i < 200; i += 3) free(early[i]), early[i] = NULL;
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = before_constructors;

static void at_exit(void) { churn(5, 128, 100000); }

static void *work(void *seed) {
    churn((uintptr_t)seed, 128, 50000);
    return malloc(321);
}

__attribute__((constructor(101))) static void constructor(void) {
    atexit(at_exit);
    pthread_t thread;
    void *block;
    CHECK(!pthread_create(&thread, NULL, work, (void *)1) && !pthread_join(thread, &block), "a thread in a constructor");
    free(block);
    by_constructor = malloc(70000);
    stamp(by_constructor, 70000, 1);
}

__attribute__((destructor(101))) static void destructor(void) {
    for (int i = 0; i < 200; i++)
        if (early[i]) check_stamp(early[i], (size_t)i * i + 1, i), free(early[i]);
    check_stamp(by_constructor, 70000, 1);
    free(by_constructor);
    churn(6, 128, 100000);
}

/* libc runs the destructors of a thread's keys in several rounds; this one comes back for each of them. */
static pthread_key_t key;
static void late(void *value) {
    uintptr_t round = *(uintptr_t *)value;
    free(value);
    churn(round + 3, 128, 3000);
    if (round == 0) return;
    uintptr_t *again = malloc(sizeof *again);
    *again = round - 1;
    pthread_setspecific(key, again);
}

/* Its own first and only calls are those of its last moments. */
static void *dies(void *unused) {
    uintptr_t *rounds = unused;
    pthread_setspecific(key, rounds);
    return NULL;
}

static void torn_down_threads(void) {
    pthread_key_create(&key, late);
    long before = 0;
    for (int wave = 0; wave < 60; wave++) {
        pthread_t thread[8];
        for (size_t i = 0; i < COUNT(thread); i++) {
            uintptr_t *rounds = malloc(sizeof *rounds);
            *rounds = 3;
            CHECK(!pthread_create(&thread[i], NULL, dies, rounds), "pthread_create");
        }
        for (size_t i = 0; i < COUNT(thread); i++) pthread_join(thread[i], NULL);
        if (wave == 20) before = status_kib("VmRSS");
    }
    long grown = status_kib("VmRSS") - before;
    CHECK(grown < 8 * 1024, "320 threads that are gone left %ld KiB behind", grown);
}

static void *for_ever(void *seed) {
    for (;;) churn((uintptr_t)seed, 64, 60000);
    return NULL;
}

static void exit_among_threads(void) {
    for (int n = 0; n < 20; n++) {
        pid_t pid = fork();
        if (!pid) {
            pthread_t thread;
            for (uintptr_t i = 1; i <= 3; i++) CHECK(!pthread_create(&thread, NULL, for_ever, (void *)i), "pthread_create");
            usleep(n % 8 * 1000);
            for (int i = 0; i < 200; i++) early[i] = NULL;
            exit(17);
        }
        int status = outcome(pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 17, "exit among threads ended with status %#x", status);
    }
}

int main(void) {
    alarm(60);
    for (int i = 0; i < 200; i++) {
        if (!early[i]) continue;
        check_stamp(early[i], (size_t)i * i + 1, i);
        early[i] = realloc(early[i], (size_t)i * i + 5000);
        check_stamp(early[i], (size_t)i * i + 1, i);
    }
    torn_down_threads();
    exit_among_threads();
    return 0;
}
