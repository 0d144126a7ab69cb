/* `make native-asan`: the scanner under the sanitizers, over files that this mutates byte by byte.

       asan SECONDS FILE...      each FILE a JSON array of events; ends at the first read or write out of bounds

   Each input lies in memory of just its size, so that one byte too many is seen. At times memory runs out. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long n_left = -1; /* how often there is memory, -1 for always */

static int is_full(void) { return n_left >= 0 && n_left-- == 0 && (n_left = 0, 1); }
static void *scarce_malloc(size_t n) { return is_full() ? NULL : malloc(n); }
static void *scarce_calloc(size_t n, size_t size) { return is_full() ? NULL : calloc(n, size); }
static void *scarce_realloc(void *p, size_t n) { return is_full() ? NULL : realloc(p, n); }

#define malloc scarce_malloc
#define calloc scarce_calloc
#define realloc scarce_realloc
#include "../../../profkit/native/scan.c"
#undef malloc
#undef calloc
#undef realloc
#include "taught.h"

static const char *const pieces[] = {"\"", "\\", "\\u", "\\u00e9", "\\ud800", "{", "}", "[", "]", ",", ":", "\xc3", "\xff", "null", "1e9", "-", "-0",
                                     "123456789012345678901", "0.0005", "\"ts\": 1", "\"args\": {", "\"grid\": \"[1,2", "\"device\": \"x 7\"", "[[[[", "\0"};
static uint64_t state = 88172645463325252u;

static size_t drawn(size_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? (size_t)(state % below) : 0;
}

static size_t mutated(uint8_t *text, size_t n, size_t room) {
    size_t at = drawn(n), count = drawn(24), from = drawn(n);
    switch (drawn(5)) {
    case 0:
        if (n) text[at] = (uint8_t)drawn(256);
        return n;
    case 1: /* take out */
        if (count > n - at) count = n - at;
        memmove(text + at, text + at + count, n - at - count);
        return n - count;
    case 2: /* cut */
        return drawn(40) ? n : at;
    default: { /* put in: a piece, or part of the text itself */
        const char *piece = pieces[drawn(sizeof pieces / sizeof *pieces)];
        uint8_t copy[24];
        if (drawn(2) || from + count > n) {
            count = strlen(piece);
            memcpy(copy, piece, count);
        } else {
            memcpy(copy, text + from, count);
        }
        if (n + count > room) return n;
        memmove(text + at + count, text + at, n - at);
        memcpy(text + at, copy, count);
        return n + count;
    }
    }
}

int main(int argc, char **argv) {
    scanner *s = taught(1);
    if (argc < 3 || !s) return 2;
    state += (uint64_t)time(NULL) * 2654435761u;
    long n_scanned = 0, n_taken = 0;
    clock_t until = clock() + (clock_t)(atof(argv[1]) * CLOCKS_PER_SEC);
    while (clock() < until) {
        FILE *file = fopen(argv[2 + drawn((size_t)argc - 2)], "rb");
        if (!file) return 2;
        static uint8_t text[1 << 18];
        size_t n = fread(text, 1, sizeof text - 4096, file);
        fclose(file);
        for (size_t i = drawn(6); i > 0; i--) n = mutated(text, n, sizeof text);
        uint8_t *exact = malloc(n ? n : 1);
        if (!exact) return 2;
        memcpy(exact, text, n);
        int64_t size = profkit_scan(s, exact, (int64_t)n, (int)drawn(2));
        n_scanned++;
        n_taken += size >= 0;
        if (!drawn(200)) { /* a new scanner, for which memory runs out sooner or later, and then is there again */
            n_left = (long)drawn(40);
            scanner *fresh = profkit_scanner(drawn(SIZE_MAX));
            for (int again = 0; fresh && again < 3; again++, n_left = -1) {
                if (!profkit_know(fresh, 0, (const uint8_t *)"cpu_op", 6, CATEGORY_COMMON_OPS, OPS)) continue;
                int64_t told = profkit_scan(fresh, exact, (int64_t)n, 1);
                if (n_left < 0 && told < 0 && size >= 0 && told != -REPEATED_KEY) printf("%ld after memory ran out\n", (long)told);
            }
            n_left = -1;
            profkit_scanner_free(fresh);
        }
        free(exact);
    }
    printf("%ld scanned, %ld taken\n", n_scanned, n_taken);
    profkit_scanner_free(s);
    return 0;
}
