/* A signal handler that allocates and frees, whatever it interrupts: each call returns, and no block has two owners.
   POSIX does not allow it and programs do it. The timers' signals come upon the heap's slow paths too, which trims and
   large sizes reach. */
#include "check.h"
#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t handled, stop;

static void handler(int number) {
    static size_t size = 40;
    int kept = errno;
    size = size * 7 % 50021 + 40;
    char *block = malloc(size), *other = calloc(1, size / 3 + 40);
    /* In the middle of the heap's own work it may have none to give. */
    if (block) stamp(block, 40, number);
    if (other) CHECK(is_zero(other, 40), "calloc in a handler is not zero");
    if (block) {
        check_stamp(block, 40, number);
        char *grown = realloc(block, size * 2);
        block = grown ? grown : block;
        check_stamp(block, 40, number);
    }
    free(other), free(block);
    handled++;
    errno = kept;
}

/* The handler is one thread's (its size is static): the others block the signal. */
static void *busy(void *seed) {
    while (!stop) churn((uintptr_t)seed, 100, 300000);
    return NULL;
}

int main(void) {
    alarm(60);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGPROF);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread[2];
    for (size_t i = 0; i < COUNT(thread); i++) CHECK(!pthread_create(&thread[i], NULL, busy, (void *)(i + 1)),
          "pthread_create");
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);

    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    struct itimerspec period = {{0, 400000}, {0, 400000}};
    CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer) && !timer_settime(timer, 0, &period, NULL), "timer: errno %d",
          errno);
    time_t end = time(NULL) + 3;
    for (unsigned n = 0; time(NULL) < end; n++) {
        churn(n, 128, 300000);
        if (n % 16 == 0) malloc_trim(0);
    }
    timer_delete(timer);
    stop = 1;
    for (size_t i = 0; i < COUNT(thread); i++) pthread_join(thread[i], NULL);
    CHECK(handled > 100, "only %d signals came", (int)handled);
    return 0;
}
