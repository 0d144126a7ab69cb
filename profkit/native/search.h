/* Places of times among ordered times. Times mostly come in order themselves: each search begins where the last ended. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_ORDERED = -1, WITHOUT_MEMORY = -2 }; /* why a function refuses */

/* The first place from which on values are greater than `value` (`after`), or not smaller. `hint` is any place. */
static inline int64_t place_of(const int64_t *ordered, int64_t n, int64_t value, bool after, int64_t hint) {
#define IS_BEFORE(i) (after ? ordered[i] <= value : ordered[i] < value)
    int64_t low = 0, high = n, step = 1;
    if (hint < n && IS_BEFORE(hint)) {
        for (low = hint + 1; low + step < n && IS_BEFORE(low + step); step *= 2) low += step + 1;
        if (low + step < n) high = low + step;
    } else {
        for (high = hint; high - step >= 0 && !IS_BEFORE(high - step); step *= 2) high -= step;
        if (high - step >= 0) low = high - step + 1;
    }
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (IS_BEFORE(middle)) low = middle + 1;
        else high = middle;
    }
    return low;
#undef IS_BEFORE
}

static void places(const int64_t *ordered, int64_t n, const int64_t *values, int64_t m, bool after, int64_t *out) {
    int64_t hint = 0;
    for (int64_t i = 0; i < m; i++) out[i] = hint = place_of(ordered, n, values[i], after, hint);
}
