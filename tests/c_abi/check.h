/* What the programs of this folder share. Each is run by tests/tests/c_abi.rs under LD_PRELOAD=libfreestone.so; it exits
   with 0 and prints nothing where all is well, and else ends with a line that says what is not. Only `churn` allocates. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define CHECK(condition, ...)                               \
    do {                                                    \
        if (!(condition)) fail(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

__attribute__((format(printf, 3, 4), noreturn, unused)) static void fail(const char *file, int line, const char *format,
      ...) {
    char text[400];
    int n = snprintf(text, sizeof text, "%s:%d: ", file, line);
    va_list arguments;
    va_start(arguments, format);
    n += vsnprintf(text + n, sizeof text - n - 1, format, arguments);
    va_end(arguments);
    if (n > (int)sizeof text - 2) n = sizeof text - 2;
    text[n++] = '\n';
    if (write(2, text, n) < 0) _exit(2);
    _exit(1);
}

/* A pattern that names its owner, so that a block given to two owners shows. */
__attribute__((unused)) static void stamp(void *block, size_t size, unsigned owner) {
    unsigned char *bytes = (unsigned char *)block;
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(owner * 37 + i * 11 + (i >> 8));
}

__attribute__((unused)) static void check_stamp(const void *block, size_t size, unsigned owner) {
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t i = 0; i < size; i++)
        CHECK(bytes[i] == (unsigned char)(owner * 37 + i * 11 + (i >> 8)), "block %p of %zu bytes changed at %zu", block,
              size, i);
}

__attribute__((unused)) static int is_zero(const void *block, size_t size) {
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) return 0;
    return 1;
}

__attribute__((unused)) static unsigned next(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Mixed use: `count` (at most 128) blocks up to `most` bytes, stamped, some grown, all checked and freed in another
   order. */
__attribute__((unused)) static void churn(unsigned seed, unsigned count, size_t most) {
    struct { char *at; size_t size; } block[128];
    if (count > 128) count = 128;
    for (unsigned i = 0; i < count; i++) {
        size_t size = next(&seed) % 7 ? next(&seed) % 512 + 1 : next(&seed) % most + 1;
        char *at = (char *)(i % 5 == 4 ? aligned_alloc(64, size) : malloc(size));
        CHECK(at, "no block of %zu bytes (errno %d)", size, errno);
        stamp(at, size < 256 ? size : 256, seed + i);
        if (i % 3 == 0) {
            at = (char *)realloc(at, size * 2 + 1);
            CHECK(at, "no %zu bytes for a block that grows", size * 2 + 1);
        }
        check_stamp(at, size < 256 ? size : 256, seed + i);
        stamp(at, size < 256 ? size : 256, i);
        block[i].at = at, block[i].size = size < 256 ? size : 256;
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned k = i ^ (count % 2 ? 0 : 1);
        check_stamp(block[k].at, block[k].size, k);
        free(block[k].at);
    }
}

/* How a child ended, waited for up to ten seconds; a child that hangs is killed. */
__attribute__((unused)) static int outcome(pid_t child) {
    int status;
    for (int tick = 0; tick < 10000; tick++) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) return status;
        CHECK(ended == 0, "waitpid: errno %d", errno);
        usleep(1000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

/* A figure of /proc/self/status, in KiB. */
__attribute__((unused)) static long status_kib(const char *name) {
    static char text[8192];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    CHECK(length > 0, "/proc/self/status: errno %d", errno);
    text[length] = 0;
    const char *at = strstr(text, name);
    CHECK(at, "no %s in /proc/self/status", name);
    return strtol(at + strlen(name) + 1, NULL, 10);
}
