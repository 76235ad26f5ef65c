/* Signal handlers in several threads at once, each of which came upon a heap at work in one size and allocates another: none
   waits for what another's interrupted thread holds. All are signalled together, and again when all have handled that: so
   the interrupted code goes on in between, however slow the machine is. One that waits for ever is ended by the alarm. */
#include "check.h"
#include <time.h>

/* At the least; a machine that has the time handles thousands of signals in these seconds. */
enum { SECONDS = 4, SIGNALS = 100, ROUNDS = 50 };
static const size_t size[] = {2000, 3000};
static _Thread_local size_t me;
static pthread_barrier_t ready;
static volatile int stop;
static volatile long handled[COUNT(size)], rounds[COUNT(size)];

static void handler(int number) {
    void *block[64];
    size_t other = size[(me + 1) % COUNT(size)];
    for (size_t i = 0; i < COUNT(block); i++) {
        block[i] = malloc(other);
        if (block[i]) stamp(block[i], 64, number);
    }
    for (size_t i = 0; i < COUNT(block); i++) {
        if (block[i]) check_stamp(block[i], 64, number);
        free(block[i]);
    }
    handled[me]++;
}

static void *busy(void *which) {
    me = (uintptr_t)which;
    pthread_barrier_wait(&ready);
    static void *block[COUNT(size)][2400];
    while (!stop) {
        for (size_t i = 0; i < 2400; i++) block[me][i] = malloc(size[me]);
        for (size_t i = 0; i < 2400; i++) free(block[me][i]);
        rounds[me]++;
    }
    return NULL;
}

static int all_have(volatile long *count, long wanted) {
    for (size_t i = 0; i < COUNT(size); i++)
        if (count[i] < wanted) return 0;
    return 1;
}

int main(void) {
    alarm(100);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread[COUNT(size)];
    pthread_barrier_init(&ready, NULL, COUNT(size) + 1);
    for (size_t i = 0; i < COUNT(size); i++) CHECK(!pthread_create(&thread[i], NULL, busy, (void *)i), "pthread_create");
    pthread_barrier_wait(&ready);
    time_t end = time(NULL) + SECONDS;
    for (long sent = 1; sent <= SIGNALS || time(NULL) < end || !all_have(rounds, ROUNDS); sent++) {
        for (size_t i = 0; i < COUNT(size); i++) CHECK(!pthread_kill(thread[i], SIGUSR1), "pthread_kill");
        do usleep(100);
        while (!all_have(handled, sent));
    }
    stop = 1;
    for (size_t i = 0; i < COUNT(size); i++) pthread_join(thread[i], NULL);
    return 0;
}
