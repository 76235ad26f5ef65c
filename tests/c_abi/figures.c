/* What the heap says of itself is true, and asking does no harm. */
#include "check.h"

enum { BLOCKS = 200 };

static size_t in_use(void) {
    struct mallinfo2 figures = mallinfo2();
    return figures.uordblks + figures.hblkhd;
}

/* `size` bytes more are in use after 200 blocks, and no longer after their free. */
static void follows(size_t size) {
    static char *block[BLOCKS];
    size_t before = in_use();
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = malloc(size);
        CHECK(block[i], "malloc(%zu)", size);
        memset(block[i], 1, size);
    }
    size_t most = in_use(), rounded = size * 9 / 8 + 4096;
    CHECK(most >= before + BLOCKS * size && most <= before + BLOCKS * rounded, "%d blocks of %zu bytes read as %zu",
          BLOCKS, size, most - before);
    struct mallinfo2 figures = mallinfo2();
    CHECK(figures.arena == figures.uordblks + figures.fordblks, "arena %zu is not %zu + %zu", figures.arena,
          figures.uordblks, figures.fordblks);
    for (int i = 0; i < BLOCKS; i++) free(block[i]);
    CHECK(in_use() <= before + 4096, "after all were freed %zu bytes are in use, before %zu", in_use(), before);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void narrow_figures_agree(void) {
    char *block = malloc(3 * MIB);
    struct mallinfo2 wide = mallinfo2();
    struct mallinfo narrow = mallinfo();
    CHECK((size_t)narrow.uordblks == wide.uordblks && (size_t)narrow.hblkhd == wide.hblkhd
          && (size_t)narrow.arena == wide.arena, "mallinfo differs from mallinfo2");
    free(block);
}

static void trim_gives_back(void) {
    enum { MANY = 100000 };
    static char *block[MANY];
    for (int i = 0; i < MANY; i++) block[i] = malloc(600), memset(block[i], 1, 600);
    long full = status_kib("VmRSS");
    for (int i = 0; i < MANY; i++) free(block[i]);
    CHECK(malloc_trim(0) == 1, "malloc_trim had nothing to give back");
    CHECK(status_kib("VmRSS") < full / 3, "%ld of %ld KiB are resident after a trim", status_kib("VmRSS"), full);
    malloc_trim(0);
    CHECK(malloc_trim(0) == 0, "malloc_trim gave something back twice");
}

static void options(void) {
    static const int known[] = {
        M_MXFAST, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_PERTURB, M_ARENA_TEST, M_ARENA_MAX,
    };
    for (size_t i = 0; i < COUNT(known); i++) CHECK(mallopt(known[i], 1) == 1, "mallopt(%d) is refused", known[i]);
    CHECK(mallopt(12345, 1) == 0, "mallopt(12345) is taken");
}

/* Every tag of the XML is closed, in order, and nothing else is in it. */
static void check_xml(char *text) {
    const char *open[16];
    int depth = 0, tags = 0;
    for (char *at = text; *at; tags++) {
        at += strspn(at, " \n");
        if (!*at) break;
        CHECK(*at == '<', "text between tags: %.40s", at);
        char *end = strchr(at, '>');
        CHECK(end, "a tag without an end: %.40s", at);
        *end = 0;
        if (at[1] == '/') {
            size_t length = strlen(at + 2);
            CHECK(depth > 0 && !strncmp(open[depth - 1], at + 2, length) && strchr(" ", open[depth - 1][length]),
                  "<%s does not close <%s", at + 1, open[depth - 1]);
            depth--;
        } else if (end[-1] != '/') {
            CHECK(depth < 16, "too deep");
            open[depth++] = at + 1;
        }
        at = end + 1;
    }
    CHECK(depth == 0 && tags > 8, "%d tags, %d open", tags, depth);
}

static void info_is_xml(void) {
    static char text[64 * KIB];
    FILE *file = tmpfile();
    CHECK(file && malloc_info(0, file) == 0, "malloc_info");
    rewind(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    CHECK(!strncmp(text, "<malloc version=\"1\">", 20) && text[length - 1] == '\n', "malloc_info wrote: %.60s", text);
    check_xml(text);
    CHECK(malloc_info(1, stdout) == EINVAL, "malloc_info takes options that it does not know");
}

static void stats_are_printed(void) {
    static char text[8 * KIB];
    int ends[2], kept = dup(2);
    CHECK(!pipe(ends), "pipe");
    dup2(ends[1], 2);
    size_t before = in_use();
    malloc_stats();
    size_t after = in_use();
    dup2(kept, 2), close(kept), close(ends[1]);
    ssize_t length = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    CHECK(length > 0 && strstr(text, "freestone: ") && strstr(text, "memory"), "malloc_stats printed %zd bytes", length);
    CHECK(before == after, "malloc_stats allocated");
}

static volatile int stop;
static void *busy(void *seed) {
    while (!stop) churn((uintptr_t)seed, 64, 50000);
    return NULL;
}

static void asking_among_threads(void) {
    pthread_t thread[3];
    for (size_t i = 0; i < COUNT(thread); i++) CHECK(!pthread_create(&thread[i], NULL, busy, (void *)(i + 1)),
          "pthread_create");
    for (int i = 0; i < 200; i++) {
        (void)mallinfo2();
        if (i % 10 == 0) malloc_trim(0);
    }
    stop = 1;
    for (size_t i = 0; i < COUNT(thread); i++) pthread_join(thread[i], NULL);
}

int main(void) {
    static const size_t sizes[] = {16, 300, 5000, 70000, 300000, 3000000};
    alarm(30);
    free(malloc(1));
    for (size_t i = 0; i < COUNT(sizes); i++) follows(sizes[i]);
    narrow_figures_agree();
    trim_gives_back();
    options();
    info_is_xml();
    stats_are_printed();
    asking_among_threads();
    return 0;
}
