// A program that is linked to a library with its own `new` and `delete`: both must be the library's, whatever is preloaded.
#include "check.h"

extern long pool_deletes;

int main() {
    for (int n = 0; n < 10; n++) {
        long *volatile block = new long(n); // volatile: or the compiler leaves the pair out
        delete block;
        free(malloc(100));
    }
    CHECK(pool_deletes == 10, "%ld of 10 blocks came back to the library", pool_deletes);
}
