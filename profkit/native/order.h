/* Rows in the order of a key, equal ones as they stand: by digits, from the last on. */
#pragma once

#include "search.h"

enum { DIGIT_BITS = 11, N_DIGITS = 1 << DIGIT_BITS, FEW_DESCENTS = 64 };

/* What is moved with each pass. */
typedef struct {
    uint64_t key;
    int64_t row;
} keyed;

/* The rows of `n` values in their order; refused where they stand nearly in order, which sorting by runs is better at. */
static int64_t ordered(const int64_t *values, int64_t n, int64_t *row) {
    int64_t low = INT64_MAX, high = INT64_MIN, descents = 0;
    for (int64_t i = 0; i < n; i++) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
        descents += i && values[i] < values[i - 1];
    }
    if (descents < n / FEW_DESCENTS) return NOT_ORDERED;
    int n_passes = 0;
    for (uint64_t width = (uint64_t)high - (uint64_t)low; width; width >>= DIGIT_BITS) n_passes++;
    keyed *from = malloc((size_t)(n + 1) * sizeof(keyed)), *to = malloc((size_t)(n + 1) * sizeof(keyed));
    int64_t told = from && to ? n : WITHOUT_MEMORY;
    for (int64_t i = 0; i < told; i++) from[i] = (keyed){(uint64_t)values[i] - (uint64_t)low, i};
    for (int pass = 0; told >= 0 && pass < n_passes; pass++) {
        int64_t place[N_DIGITS] = {0}, next = 0;
        int shift = pass * DIGIT_BITS;
        for (int64_t i = 0; i < n; i++) place[from[i].key >> shift & (N_DIGITS - 1)]++;
        for (int digit = 0; digit < N_DIGITS; digit++) {
            int64_t count = place[digit];
            place[digit] = next;
            next += count;
        }
        for (int64_t i = 0; i < n; i++) to[place[from[i].key >> shift & (N_DIGITS - 1)]++] = from[i];
        keyed *swapped = from;
        from = to;
        to = swapped;
    }
    for (int64_t i = 0; i < told; i++) row[i] = from[i].row;
    free(from);
    free(to);
    return told;
}
