/* Each wrong free that the heap sees ends the program by SIGABRT, with one line on stderr that names the pointer and the
   fault. */
#include "check.h"
#include <sys/mman.h>

static char in_static[4096] __attribute__((aligned(64)));
static void (*volatile release)(void *) = free;
static void *(*volatile resize)(void *, size_t) = realloc;

/* The faults, each with the words that its line must have. `run` announces the pointer, then does what is wrong. */
static void announce(int to, void *pointer) {
    if (write(to, &pointer, sizeof pointer) < 0) _exit(9);
}

static void of_the_stack(int to) {
    char local[512] __attribute__((aligned(64)));
    announce(to, local + 64);
    release(local + 64);
}
static void of_static_data(int to) {
    announce(to, in_static + 64);
    release(in_static + 64);
}
static void of_a_mapping(int to) {
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    announce(to, page);
    release(page);
}
static void of_a_small_number(int to) {
    announce(to, (void *)0x10);
    release((void *)0x10);
}
static void of_the_highest_address(int to) {
    announce(to, (void *)-16l);
    release((void *)-16l);
}
static void realloc_of_static_data(int to) {
    announce(to, in_static);
    resize(in_static, 100);
}

#define INSIDE(name, size, offset)             \
    static void name(int to) {                 \
        char *block = malloc(size);            \
        announce(to, block + offset);          \
        release(block + offset);               \
    }
INSIDE(into_a_small_block, 2048, 16)
INSIDE(at_an_odd_address, 64, 1)
INSIDE(into_a_page_block, 40000, 4096)

#define TWICE(name, size, between)                 \
    static void name(int to) {                     \
        char *block = malloc(size), *other = malloc(size); \
        announce(to, block);                       \
        release(block);                            \
        between;                                   \
        release(block);                            \
        (void)other;                               \
    }
TWICE(twice_16, 16, (void)0)
TWICE(twice_64_with_another_between, 64, release(other))
TWICE(twice_1000, 1000, (void)0)
TWICE(twice_5000_with_another_between, 5000, release(other))
TWICE(twice_200000, 200000, (void)0)
TWICE(twice_600000, 600000, (void)0)
TWICE(twice_5000000, 5000000, (void)0)

static const struct {
    const char *name;
    void (*run)(int);
    const char *words;
} faults[] = {
    {"stack", of_the_stack, "no live block"},
    {"static data", of_static_data, "no live block"},
    {"a mapping", of_a_mapping, "no live block"},
    {"0x10", of_a_small_number, "no live block"},
    {"the highest address", of_the_highest_address, "no live block"},
    {"realloc of static data", realloc_of_static_data, "no live block"},
    {"inside a small block", into_a_small_block, "middle of a block"},
    {"at an odd address", at_an_odd_address, "middle of a block"},
    {"inside a block of pages", into_a_page_block, "middle of a block"},
    {"twice, 16 bytes", twice_16, "double free"},
    {"twice, 64 bytes", twice_64_with_another_between, "double free"},
    {"twice, 1000 bytes", twice_1000, "double free"},
    {"twice, 5000 bytes", twice_5000_with_another_between, "double free"},
    {"twice, 200000 bytes", twice_200000, "double free"},
    /* A large block's address is no block's any more. */
    {"twice, 600000 bytes", twice_600000, "at 0x"},
    {"twice, 5000000 bytes", twice_5000000, "at 0x"},
};

static void one(size_t n) {
    int pointer_pipe[2], line_pipe[2];
    char line[512] = "", address[32];
    void *pointer = NULL;
    CHECK(!pipe(pointer_pipe) && !pipe(line_pipe), "pipe");
    pid_t pid = fork();
    if (!pid) {
        dup2(line_pipe[1], 2);
        faults[n].run(pointer_pipe[1]);
        _exit(0);
    }
    close(line_pipe[1]), close(pointer_pipe[1]);
    int status = outcome(pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: status %#x, not SIGABRT", faults[n].name, status);
    CHECK(read(pointer_pipe[0], &pointer, sizeof pointer) == sizeof pointer, "%s: no pointer", faults[n].name);
    ssize_t length = read(line_pipe[0], line, sizeof line - 1);
    CHECK(length > 0 && strchr(line, '\n') == line + length - 1, "%s: not one line: %s", faults[n].name, line);
    snprintf(address, sizeof address, "at %#lx", (unsigned long)pointer);
    CHECK(!strncmp(line, "freestone: ", 11) && strstr(line, address) && strstr(line, faults[n].words), "%s at %p: %s",
          faults[n].name, pointer, line);
    close(line_pipe[0]), close(pointer_pipe[0]);
}

int main(void) {
    alarm(60);
    for (size_t n = 0; n < COUNT(faults); n++) one(n);
    return 0;
}
