/* Under a limit of address space or of data: the program starts, gets most of it, is refused with ENOMEM, and goes on. */
#include "exhaust.h"
#include <sys/resource.h>

enum { LIMIT = 400 };

static void *work(void *seed) {
    for (int i = 0; i < 20; i++) churn((uintptr_t)seed, 100, 20000);
    return NULL;
}

static void threads(void) {
    pthread_attr_t small;
    pthread_t thread[4];
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * KIB);
    for (size_t i = 0; i < COUNT(thread); i++) CHECK(!pthread_create(&thread[i], &small, work, (void *)(i + 1)),
          "pthread_create");
    for (size_t i = 0; i < COUNT(thread); i++) pthread_join(thread[i], NULL);
}

/* Allocates to the end, `size` bytes at a time, and some of it again. */
static void there_and_back(size_t size) {
    int count = exhaust(size, LIMIT * MIB);
    CHECK(count * size > LIMIT * MIB / 3, "%zu bytes at a time: only %zu MiB of %d", size, count * size / MIB, LIMIT);
    /* The half is even, so that the second begins with one that stays. */
    if (count / 2 % 2) free(block[--count]);
    if (count / 2 % 2) free(block[--count]);
    for (int i = 1; i < count; i += 2) free(block[i]);
    for (int i = 1; i < count / 2; i += 2) {
        block[i] = malloc(size);
        CHECK(block[i], "%zu bytes at a time: block %d of %d is refused though half was freed", size, i, count);
    }
    /* Live are all of the first half, and the even ones of the second. */
    for (int i = 0; i < count; i += i < count / 2 ? 1 : 2) free(block[i]);
}

int main(int words, char **word) {
    static const size_t sizes[] = {120, 900, 10000, 200000, 3000000};
    alarm(100);
    if (words == 2) {
        int which = strcmp(word[1], "data") ? RLIMIT_AS : RLIMIT_DATA;
        struct rlimit limit = {LIMIT * MIB, LIMIT * MIB};
        CHECK(!setrlimit(which, &limit), "setrlimit");
        execl("/proc/self/exe", word[0], word[1], "limited", NULL);
        CHECK(0, "exec: errno %d", errno);
    }
    threads();
    for (size_t i = 0; i < COUNT(sizes); i++) there_and_back(sizes[i]);
    threads();
    char *large = malloc(100 * MIB);
    CHECK(large, "100 MiB after all was freed");
    memset(large, 1, 100 * MIB);
    free(large);
    return 0;
}
