/* Run without a preload: the library is loaded by `dlopen`, works beside libc's allocator, is closed, and its blocks live
   on. */
#include "check.h"
#include <dlfcn.h>

static void *(*allocate)(size_t), *(*resize)(void *, size_t);
static void (*release)(void *);

static void *work(void *seed) {
    char *block[64];
    for (unsigned round = 0; round < 100; round++) {
        unsigned size = (unsigned)(uintptr_t)seed * 97 + round * 31 + 1;
        for (unsigned i = 0; i < 64; i++) {
            block[i] = allocate(size + i);
            CHECK(block[i], "malloc of the loaded library");
            stamp(block[i], size, i);
        }
        for (unsigned i = 0; i < 64; i++) {
            block[i] = resize(block[i], 20000);
            check_stamp(block[i], size, i);
            release(block[i]);
        }
    }
    return NULL;
}

static void threads(void) {
    pthread_t thread[4];
    for (size_t i = 0; i < COUNT(thread); i++) CHECK(!pthread_create(&thread[i], NULL, work, (void *)(i + 1)),
          "pthread_create");
    work((void *)9);
    for (size_t i = 0; i < COUNT(thread); i++) pthread_join(thread[i], NULL);
}

int main(int count, char **words) {
    alarm(60);
    CHECK(count == 2, "usage: loaded libfreestone.so");
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library, "dlopen: %s", dlerror());
        allocate = (void *(*)(size_t))dlsym(library, "malloc");
        resize = (void *(*)(void *, size_t))dlsym(library, "realloc");
        release = (void (*)(void *))dlsym(library, "free");
        CHECK(allocate && resize && release && allocate != malloc, "dlsym");
        threads();
        char *kept = allocate(1000);
        stamp(kept, 1000, 3);
        CHECK(!dlclose(library), "dlclose: %s", dlerror());
        /* The code stays: threads and blocks may need it. */
        check_stamp(kept, 1000, 3);
        release(kept);
        threads();
        pid_t pid = fork();
        if (!pid) {
            work((void *)5);
            _exit(0);
        }
        CHECK(outcome(pid) == 0, "a fork after dlclose");
    }
    return 0;
}
