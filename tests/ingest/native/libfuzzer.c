/* `make native-fuzz`: the scanner under libFuzzer, which mutates towards new branches, and clang's sanitizers.

   The first byte says whether keys must be unique; the rest is the text of an array. It lies in memory of just its size.
   What a scanner answers may not depend on what it read before: one that is always new is asked as well. */
#include <stdio.h>
#include <stdlib.h>

#include "../../../profkit/ingest/native/scan.c"
#include "taught.h"

static void ended(const char *why) {
    fprintf(stderr, "%s\n", why);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static scanner *used;
    if (n == 0) return 0;
    scanner *fresh = profkit_scanner(7);
    if (!used) {
        used = profkit_scanner(7);
        if (!used || !taught(used)) ended("no scanner");
    }
    if (!fresh || !taught(fresh)) ended("no scanner");
    uint8_t *exact = malloc(n > 1 ? n - 1 : 1);
    if (!exact) ended("no memory");
    memcpy(exact, data + 1, n - 1);
    int64_t told = profkit_scan(used, exact, (int64_t)n - 1, data[0] & 1);
    int64_t again = profkit_scan(fresh, exact, (int64_t)n - 1, data[0] & 1);
    if (told != again) ended("a used scanner answers otherwise than a new one");
    if (told > 0 && memcmp(profkit_result(used), profkit_result(fresh), (size_t)told) != 0) ended("a used scanner reads something else than a new one");
    profkit_scanner_free(fresh);
    free(exact);
    return 0;
}
