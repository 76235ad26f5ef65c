/* At a limit: for pressure.c, whose limit the allocator sets, and limits.c, whose limit the system sets. */
#pragma once
#include "check.h"

enum { SLOTS = 4000000 };
static char *block[SLOTS];

/* Fills `block`, `size` bytes at a time, until malloc refuses. Then all that ask for `limit` bytes more are refused with
   ENOMEM, and the block that was to grow is as it was. Returns how many there are. */
static int exhaust(size_t size, size_t limit) {
    int count = 0;
    errno = 0;
    while (count < SLOTS && (block[count] = malloc(size))) block[count++][0] = 1;
    CHECK(count < SLOTS && errno == ENOMEM, "%zu bytes at a time: no refusal, or errno %d", size, errno);
    stamp(block[0], size, 3);
    errno = 0;
    CHECK(!realloc(block[0], limit) && errno == ENOMEM, "realloc at the limit: errno %d", errno);
    check_stamp(block[0], size, 3);
    errno = 0;
    CHECK(!calloc(1, limit) && errno == ENOMEM, "calloc at the limit: errno %d", errno);
    void *out = NULL;
    CHECK(posix_memalign(&out, 65536, limit) == ENOMEM && !out, "posix_memalign at the limit");
    return count;
}
