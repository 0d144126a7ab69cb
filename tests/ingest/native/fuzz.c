/* `make native-fuzz`: the scanner beneath libFuzzer, whose input is the text of an array of events.

   Beside what the sanitizers see, three things must hold: a scanner that has read others before gives the same block
   as a new one with another seed; a batch that is taken with unique keys is the same without; and every part of a
   block lies in it. */
#include <stdio.h>
#include <stdlib.h>

#include "../../../profkit/native/scan.c"
#include "taught.h"

enum { EVERY = 8 };

static void must(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "native-fuzz: %s\n", what);
    abort();
}

static int64_t word(const uint8_t *block, int64_t at) {
    int64_t found;
    memcpy(&found, block + at, sizeof found);
    return found;
}

typedef struct {
    int64_t at, n_bytes;
} part;

static part within(int64_t at, int64_t n_bytes, int64_t n) {
    must(at >= 0 && n_bytes >= 0 && at <= n && n_bytes <= n - at, "a part of a block ends behind it");
    return (part){at, n_bytes};
}

static part section_of(const uint8_t *block, int64_t n, int which) {
    int64_t place = 8 * (H_SECTIONS + 2 * which);
    return within(word(block, place), word(block, place + 8), n);
}

/* Look at every part of a block: the header, each section, the values of each column. The bytes between are nobody's.
   `other` is a block that must have the same, or NULL. */
static void look_through(const uint8_t *block, int64_t n, const uint8_t *other, const char *what) {
    must(n >= 8 * N_HEADER, "a block without its header");
    must(!other || !memcmp(block, other, 8 * N_HEADER), what);
    for (int which = 0; which < N_SECTIONS; which++) {
        part part = section_of(block, n, which);
        must(!other || !memcmp(block + part.at, other + part.at, (size_t)part.n_bytes), what);
    }
    part tables = section_of(block, n, TABLES), columns = section_of(block, n, COLUMNS);
    must(tables.n_bytes % 16 == 0 && columns.n_bytes % 32 == 0, "half a row");
    for (int64_t row = columns.at; row < columns.at + columns.n_bytes; row += 32) {
        int64_t n_rows = -1;
        for (int64_t table = tables.at; table < tables.at + tables.n_bytes; table += 16)
            if (word(block, table) == word(block, row)) n_rows = word(block, table + 8);
        must(n_rows >= 0, "a column of no table");
        part part = within(word(block, row + 16), n_rows * word(block, row + 24), n);
        must(!other || !memcmp(block + part.at, other + part.at, (size_t)part.n_bytes), what);
    }
}

static void must_equal(const scanner *a, int64_t n_a, const scanner *b, int64_t n_b, const char *what) {
    must(n_a == n_b, what);
    if (n_a >= 0) look_through(profkit_result(a), n_a, profkit_result(b), what);
}

int LLVMFuzzerTestOneInput(const uint8_t *text, size_t n) {
    static scanner *usual, *strict;
    if (!usual) usual = taught(1), strict = taught(2);
    if (!usual || !strict) return 0;
    int64_t taken = profkit_scan(usual, text, (int64_t)n, 0), taken_strictly = profkit_scan(strict, text, (int64_t)n, 1);
    if (taken >= 0) look_through(profkit_result(usual), taken, NULL, "");
    if (taken_strictly >= 0) must_equal(usual, taken, strict, taken_strictly, "unique keys change a block");
    else must(taken < 0 || taken_strictly == -REPEATED_KEY, "unique keys refuse what has no key twice");
    if (n % EVERY) return 0;
    scanner *fresh = taught(3 + n);
    if (!fresh) return 0;
    must_equal(usual, taken, fresh, profkit_scan(fresh, text, (int64_t)n, 0), "what was read before changes a block");
    profkit_scanner_free(fresh);
    return 0;
}
