/* Limits and a control group: what `malloc` refuses, and what stays resident after frees. The test sets the limit, by
   FREESTONE_CONF or by a control group, and says which as the first word. */
#include "exhaust.h"

enum { LIMIT = 64 };

/* To the hard limit and back, `size` bytes at a time. */
static void there_and_back(size_t size) {
    int count = exhaust(size, LIMIT * MIB);
    CHECK(count * size <= LIMIT * MIB, "%zu bytes at a time: %zu MiB of %d", size, count * size / MIB, LIMIT);
    CHECK(count * size > LIMIT * MIB * 3 / 4, "%zu bytes at a time: only %zu MiB of %d", size, count * size / MIB, LIMIT);
    for (int i = count / 2; i < count; i++) free(block[i]);
    for (int i = count / 2; i < count; i++) CHECK(block[i] = malloc(size), "block %d of %d, though half was freed", i, count);
    for (int i = 0; i < count; i++) free(block[i]);
}

static void hard(void) {
    static const size_t sizes[] = {100, 1000, 10000, 200000, 3000000};
    for (size_t i = 0; i < COUNT(sizes); i++) there_and_back(sizes[i]);
    CHECK(mallinfo2().hblkhd + mallinfo2().arena <= LIMIT * MIB, "more is mapped than the limit");
    churn(1, 100, 20000);
}

/* `total` MiB in blocks of 100 kB, each written, of which about `going` MiB are freed again, here and
   there, after the few milliseconds for which the heap may rely on what it knows of its control group. */
static void fill(size_t total, size_t going) {
    size_t count = total * MIB / 100000, step = total / going;
    for (size_t i = 0; i < count; i++) {
        CHECK(block[i] = malloc(100000), "block %zu of %zu", i, count);
        memset(block[i], 1, 100000);
    }
    usleep(20000);
    for (size_t i = 0; i < count; i += step) free(block[i]), block[i] = NULL;
}

static void empty(void) {
    for (size_t i = 0; i < SLOTS; i++)
        if (block[i]) free(block[i]), block[i] = NULL;
}

/* 70 MiB, of which 10 go: resident is what the limit of 64 MiB says, within the tables. */
static void soft(void) {
    long before = status_kib("VmRSS:");
    fill(70, 10);
    long grown = status_kib("VmRSS:") - before;
    CHECK(grown < (LIMIT + 2) * (long)KIB, "%ld KiB resident beside a limit of %d MiB", grown, LIMIT);
    CHECK(grown > 58 * (long)KIB, "only %ld KiB resident: the test tests nothing", grown);
    empty();
    churn(1, 100, 20000);
}

/* In a control group of 128 MiB: 120, of which 6 go, so that it stays nearly used up. Free and resident after it is little,
   if the group is heeded. */
static void group(int heeded) {
    fill(120, 6);
    size_t dirty = mallinfo2().keepcost;
    if (heeded) CHECK(dirty <= MIB, "%zu KiB stay free and resident", dirty / KIB);
    else CHECK(dirty > 4 * MIB, "only %zu KiB stay free and resident: the test tests nothing", dirty / KIB);
    empty();
    fill(40, 20);
    dirty = mallinfo2().keepcost;
    CHECK(dirty > 4 * MIB, "only %zu KiB stay though there is plenty", dirty / KIB);
    empty();
}

int main(int words, char **word) {
    alarm(100);
    CHECK(words == 2, "one word");
    if (!strcmp(word[1], "hard")) hard();
    else if (!strcmp(word[1], "soft")) soft();
    else group(!strcmp(word[1], "heeded"));
    return 0;
}
