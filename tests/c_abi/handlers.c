/* Signal handlers in several threads at once, each of which came upon a heap at work in one size and allocates another: none
   waits for what another's interrupted thread holds. */
#include "check.h"
#include <time.h>

static const size_t size[] = {2000, 3000};
static _Thread_local size_t me;
static volatile int stop;
static volatile long rounds[COUNT(size)];

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
}

static void *busy(void *which) {
    me = (uintptr_t)which;
    static void *block[COUNT(size)][2400];
    while (!stop) {
        for (size_t i = 0; i < 2400; i++) block[me][i] = malloc(size[me]);
        for (size_t i = 0; i < 2400; i++) free(block[me][i]);
        rounds[me]++;
    }
    return NULL;
}

int main(void) {
    alarm(30);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread[COUNT(size)];
    for (size_t i = 0; i < COUNT(size); i++) CHECK(!pthread_create(&thread[i], NULL, busy, (void *)i), "pthread_create");
    for (time_t end = time(NULL) + 4; time(NULL) < end;) {
        for (size_t i = 0; i < COUNT(size); i++) pthread_kill(thread[i], SIGUSR1);
        usleep(100);
    }
    stop = 1;
    for (size_t i = 0; i < COUNT(size); i++) {
        pthread_join(thread[i], NULL);
        CHECK(rounds[i] > 0, "thread %zu did not finish a round", i);
    }
    return 0;
}
