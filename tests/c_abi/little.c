/* A program that may take 64 MiB of addresses, or of data: the heap's own tables leave it most of that. */
#include "check.h"
#include <sys/resource.h>

enum { LIMIT = 64, WANTED = 40, SLOTS = 400000 };
static char *block[SLOTS];

static void use(size_t size) {
    size_t count = WANTED * MIB / size;
    for (size_t i = 0; i < count; i++) {
        block[i] = malloc(size);
        CHECK(block[i], "%zu bytes at a time: only %zu KiB of %d MiB", size, i * size / KIB, WANTED);
        stamp(block[i], 100, i);
    }
    for (size_t i = 0; i < count; i++) {
        check_stamp(block[i], 100, i);
        free(block[i]);
    }
}

int main(int words, char **word) {
    static const size_t sizes[] = {120, 10000, 200000, 3000000};
    alarm(100);
    if (words == 2) {
        int which = strcmp(word[1], "data") ? RLIMIT_AS : RLIMIT_DATA;
        struct rlimit limit = {LIMIT * MIB, LIMIT * MIB};
        CHECK(!setrlimit(which, &limit), "setrlimit");
        execl("/proc/self/exe", word[0], word[1], "limited", NULL);
        CHECK(0, "exec: errno %d", errno);
    }
    for (size_t i = 0; i < COUNT(sizes); i++) use(sizes[i]);
    return 0;
}
