/* What C, POSIX and glibc promise of each function: sizes, alignment, contents, errno. */
#include "check.h"
#include <dlfcn.h>

/* C23, and names that no header declares. */
static void (*free_sized_)(void *, size_t);
static void (*free_aligned_sized_)(void *, size_t, size_t);

/* The compiler knows these functions and would answer for them. */
static void *(*volatile allocate)(size_t) = malloc;
static void *(*volatile allocate_zeroed)(size_t, size_t) = calloc;
static void *(*volatile resize)(void *, size_t) = realloc;
static void (*volatile release)(void *) = free;

static int aligned(const void *block, size_t to) { return ((uintptr_t)block & (to - 1)) == 0; }

static void every_function_is_ours(void) {
    static const char *const names[] = {
        "malloc", "free", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc",
        "pvalloc", "cfree", "malloc_usable_size", "free_sized", "free_aligned_sized", "malloc_trim", "mallinfo", "mallinfo2",
        "mallopt", "malloc_stats", "malloc_info", "vfork", "__vfork", "__libc_malloc", "__libc_free", "__libc_calloc",
        "__libc_realloc", "__libc_memalign", "__libc_valloc", "__libc_pvalloc", "__posix_memalign", "_ZdlPv", "_ZdaPv",
        "_ZdlPvm", "_ZdaPvm", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t", "_ZdlPvSt11align_val_t",
        "_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t",
        "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    };
    Dl_info ours, found;
    CHECK(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &ours) && strstr(ours.dli_fname, "freestone"), "malloc is not Freestone's");
    for (size_t i = 0; i < COUNT(names); i++) {
        void *at = dlsym(RTLD_DEFAULT, names[i]);
        CHECK(at && dladdr(at, &found), "%s is missing", names[i]);
        CHECK(found.dli_fbase == ours.dli_fbase, "%s is that of %s", names[i], found.dli_fname);
    }
    /* A program linked to libstd.so must not get these from us. */
    static const char *const hidden[] = {"rust_eh_personality", "rust_begin_unwind", "_Znwm", "_Znam"};
    for (size_t i = 0; i < COUNT(hidden); i++) {
        void *at = dlsym(RTLD_DEFAULT, hidden[i]);
        CHECK(!at || !dladdr(at, &found) || found.dli_fbase != ours.dli_fbase, "%s is exported", hidden[i]);
    }
    free_sized_ = dlsym(RTLD_DEFAULT, "free_sized");
    free_aligned_sized_ = dlsym(RTLD_DEFAULT, "free_aligned_sized");
}

static void blocks_are_aligned_and_whole(void) {
    for (size_t size = 0; size < 300 * KIB; size += size < 2000 ? 1 : size / 3) {
        char *block[3] = {allocate(size), allocate_zeroed(1, size), resize(allocate(size / 3 + 1), size + 1)};
        for (int i = 0; i < 3; i++) {
            CHECK(block[i], "no block of %zu bytes", size);
            CHECK(aligned(block[i], 16), "%p for %zu bytes is not aligned to 16", (void *)block[i], size);
            size_t usable = malloc_usable_size(block[i]);
            CHECK(usable >= size, "%zu usable of %zu", usable, size);
            CHECK(i != 1 || is_zero(block[1], size), "calloc of %zu bytes is not zero", size);
            stamp(block[i], usable, i);
        }
        for (int i = 0; i < 3; i++) check_stamp(block[i], malloc_usable_size(block[i]), i);
        for (int i = 0; i < 3; i++) release(block[i]);
    }
    CHECK(malloc_usable_size(NULL) == 0, "null has a size");
}

static void blocks_of_no_bytes_are_blocks(void) {
    void *one = allocate(0), *two = allocate(0), *three = allocate_zeroed(0, 7), *four = allocate_zeroed(7, 0);
    CHECK(one && two && three && four, "malloc(0) is null");
    CHECK(one != two && three != four && two != three, "malloc(0) gave one block twice");
    release(one), release(two), release(three), release(four);
}

static void refusals(size_t size) {
    char *kept = allocate(100);
    stamp(kept, 100, 5);
    errno = 0;
    CHECK(!allocate(size) && errno == ENOMEM, "malloc(%#zx): errno %d", size, errno);
    errno = 0;
    CHECK(!allocate_zeroed(1, size) && errno == ENOMEM, "calloc(1, %#zx): errno %d", size, errno);
    errno = 0;
    CHECK(!resize(kept, size) && errno == ENOMEM, "realloc(%#zx): errno %d", size, errno);
    errno = 0;
    CHECK(!memalign(64, size) && errno == ENOMEM, "memalign(64, %#zx): errno %d", size, errno);
    errno = 0;
    CHECK(!valloc(size) && errno == ENOMEM, "valloc(%#zx): errno %d", size, errno);
    errno = 0;
    CHECK(!pvalloc(size) && errno == ENOMEM, "pvalloc(%#zx): errno %d", size, errno);
    void *out = kept;
    errno = 7;
    CHECK(posix_memalign(&out, 64, size) == ENOMEM && out == kept && errno == 7,
          "posix_memalign(%#zx) touched errno or its result", size);
    check_stamp(kept, 100, 5);
    release(kept);
}

static void sizes_that_cannot_be_are_refused(void) {
    static const size_t most[] = {PTRDIFF_MAX, SIZE_MAX};
    for (size_t m = 0; m < COUNT(most); m++)
        for (size_t below = 0; below < 70; below++) refusals(most[m] - below);
    refusals((size_t)PTRDIFF_MAX + 1);
    static const size_t product[][2] = {{SIZE_MAX, 2}, {SIZE_MAX / 2, 3}, {(size_t)1 << 32, (size_t)1 << 32},
          {((size_t)1 << 33) + 1, (size_t)1 << 31}};
    for (size_t i = 0; i < COUNT(product); i++) {
        errno = 0;
        CHECK(!allocate_zeroed(product[i][0], product[i][1]) && errno == ENOMEM, "calloc with an overflow: errno %d", errno);
        errno = 0;
        CHECK(!reallocarray(NULL, product[i][0], product[i][1]) && errno == ENOMEM,
              "reallocarray with an overflow: errno %d", errno);
    }
}

static void realloc_is_glibcs(void) {
    char *block = resize(NULL, 40);
    CHECK(block, "realloc(NULL, 40)");
    stamp(block, 40, 1);
    static const size_t sizes[] = {41, 900, 70, 5000, 300000, 5000000, 9000000, 300, 40};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        block = resize(block, sizes[i]);
        CHECK(block && aligned(block, 16), "realloc to %zu", sizes[i]);
        check_stamp(block, 40, 1);
    }
    errno = 0;
    CHECK(!resize(block, 0) && errno == 0, "realloc(p, 0) must free and answer null: errno %d", errno);
    block = reallocarray(NULL, 10, 30);
    stamp(block, 300, 2);
    block = reallocarray(block, 100, 30);
    check_stamp(block, 300, 2);
    release(block);
}

static void alignments(void) {
    static const size_t sizes[] = {0, 1, 15, 16, 17, 100, 1000, 4096, 5000, 40000, 300000};
    for (size_t to = 1; to <= 4 * MIB; to *= 2)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            void *block[3] = {aligned_alloc(to, sizes[i]), memalign(to, sizes[i]), NULL};
            int answer = posix_memalign(&block[2], to, sizes[i]);
            CHECK(answer == (to < sizeof(void *) ? EINVAL : 0), "posix_memalign(%zu, %zu) is %d", to, sizes[i], answer);
            for (int k = 0; k < (answer ? 2 : 3); k++) {
                CHECK(block[k] && aligned(block[k], to), "%p is not aligned to %zu", block[k], to);
                stamp(block[k], sizes[i], k);
            }
            for (int k = 0; k < (answer ? 2 : 3); k++) check_stamp(block[k], sizes[i], k), release(block[k]);
        }
    static const size_t odd[] = {0, 3, 6, 12, 24, 48, 100, 4095, SIZE_MAX};
    for (size_t i = 0; i < COUNT(odd); i++) {
        void *out = &out;
        errno = 7;
        CHECK(posix_memalign(&out, odd[i], 8) == EINVAL && out == &out && errno == 7, "posix_memalign with alignment %zu",
              odd[i]);
        errno = 0;
        CHECK(!aligned_alloc(odd[i], 8) && errno == EINVAL, "aligned_alloc with alignment %zu: errno %d", odd[i], errno);
    }
    void *block = memalign(48, 10);
    CHECK(block && aligned(block, 64), "memalign does not round 48 up to 64");
    release(block);
    errno = 0;
    CHECK(!memalign(SIZE_MAX, 8) && errno == EINVAL, "memalign(SIZE_MAX): errno %d", errno);
    void *page = valloc(10), *pages = pvalloc(4097);
    CHECK(aligned(page, 4096) && aligned(pages, 4096) && malloc_usable_size(pages) >= 8192, "valloc or pvalloc");
    release(page), release(pages);
}

static void errno_survives_free(void) {
    static const size_t sizes[] = {0, 1, 100, 5000, 100000, 1000000, 30000000, 200000000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        void *block[100];
        int count = sizes[i] > 100000 ? 2 : 100;
        for (int k = 0; k < count; k++) block[k] = allocate(sizes[i]);
        for (int k = 0; k < count; k++) {
            errno = 1000 + k;
            release(block[k]);
            CHECK(errno == 1000 + k, "free of %zu bytes set errno to %d", sizes[i], errno);
        }
    }
    errno = 5;
    release(NULL), free_sized_(NULL, 3), free_aligned_sized_(NULL, 64, 3);
    CHECK(errno == 5, "free(NULL) set errno to %d", errno);
}

static void sized_frees(void) {
    for (size_t size = 0; size < 600 * KIB; size += size < 600 ? 1 : size / 2) {
        free_sized_(allocate(size), size);
        free_sized_(allocate_zeroed(1, size), size);
        free_sized_(resize(allocate(size / 2 + 1), size + 1), size + 1);
        /* A block that shrank, perhaps in place, has the new size. */
        free_sized_(resize(allocate(size * 2 + 100), size + 1), size + 1);
        for (size_t to = 16; to <= 64 * KIB; to *= 8) free_aligned_sized_(aligned_alloc(to, size), to, size);
    }
}

static void names_of_glibc(void) {
    void *(*malloc_)(size_t) = dlsym(RTLD_DEFAULT, "__libc_malloc");
    void *(*memalign_)(size_t, size_t) = dlsym(RTLD_DEFAULT, "__libc_memalign");
    void *(*realloc_)(void *, size_t) = dlsym(RTLD_DEFAULT, "__libc_realloc");
    void (*free_)(void *) = dlsym(RTLD_DEFAULT, "__libc_free"), (*cfree_)(void *) = dlsym(RTLD_DEFAULT, "cfree");
    for (size_t size = 1; size < 100 * KIB; size = size * 2 + 1) {
        release(malloc_(size));
        free_(allocate(size));
        cfree_(realloc_(memalign_(256, size), size * 2));
    }
}

int main(void) {
    every_function_is_ours();
    blocks_are_aligned_and_whole();
    blocks_of_no_bytes_are_blocks();
    sizes_that_cannot_be_are_refused();
    realloc_is_glibcs();
    alignments();
    errno_survives_free();
    sized_frees();
    names_of_glibc();
    return 0;
}
