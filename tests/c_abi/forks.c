/* `fork` of a program whose threads allocate, with handlers that allocate, leaves a working heap in parent and child. */
#include "check.h"

static volatile int stop;
static void *held;

static void before(void) {
    held = malloc(777);
    free(calloc(1, 100000));
}
static void in_parent(void) {
    free(held);
    free(malloc(60000));
}
static void in_child(void) {
    free(held);
    churn(4, 100, 50000);
}

/* Earlier than any constructor of a library that is loaded after us, and later than the heap's own. */
__attribute__((constructor(101))) static void early(void) { pthread_atfork(before, in_parent, in_child); }

static void *busy(void *seed) {
    while (!stop) churn((uintptr_t)seed, 100, 100000);
    return NULL;
}

static void *work(void *seed) {
    for (int i = 0; i < 5; i++) churn((uintptr_t)seed, 100, 20000);
    return NULL;
}

static void child(unsigned n, char *inherited) {
    check_stamp(inherited, 5000, 9);
    free(inherited);
    churn(n, 128, 200000);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, work, NULL) && !pthread_join(thread, NULL), "a thread in the child");
    malloc_trim(0);
    pid_t grandchild = fork();
    if (!grandchild) {
        churn(n + 1, 128, 100000);
        _exit(0);
    }
    _exit(outcome(grandchild) == 0 ? 0 : 3);
}

int main(void) {
    alarm(60);
    pthread_t thread[3];
    char *inherited = malloc(5000);
    stamp(inherited, 5000, 9);
    for (size_t i = 0; i < COUNT(thread); i++) CHECK(!pthread_create(&thread[i], NULL, busy, (void *)(i + 1)),
          "pthread_create");
    for (unsigned n = 0; n < 50; n++) {
        pid_t pid = fork();
        CHECK(pid >= 0, "fork: errno %d", errno);
        if (!pid) child(n, inherited);
        int status = outcome(pid);
        CHECK(status == 0, "child %u ended with status %#x", n, status);
    }
    stop = 1;
    for (size_t i = 0; i < COUNT(thread); i++) pthread_join(thread[i], NULL);
    check_stamp(inherited, 5000, 9);
    free(inherited);
    return 0;
}
