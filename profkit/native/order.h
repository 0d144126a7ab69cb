/* Rows in the order of a key, equal ones as they stand: by digits, from the last on; and what is equal to each. */
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

enum { FEW_VALUES = 64, MOST_OTHERS = 256 };

static inline size_t value_slot(int64_t value, size_t n_slots) {
    uint64_t mixed = (uint64_t)value * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(mixed ^ mixed >> 32) & (n_slots - 1);
}

/* The slot of a value in a table of places + 1, or the free one for it; refused behind too many others. */
static int64_t slot_of(const int64_t *slots, size_t n_slots, const int64_t *values, int64_t value) {
    size_t slot = value_slot(value, n_slots);
    for (int others = 0; slots[slot] && values[slots[slot] - 1] != value; slot = (slot + 1) & (n_slots - 1)) {
        if (others++ == MOST_OTHERS) return NOT_ORDERED;
    }
    return (int64_t)slot;
}

/* The place of the next equal value behind each, `n` for none: from the last on, the latest place of each is at hand. */
static int64_t next_equal(const int64_t *values, int64_t n, int64_t *next) {
    size_t n_slots = FEW_VALUES, n_used = 0;
    int64_t *slots = calloc(n_slots, sizeof *slots), told = slots ? n : WITHOUT_MEMORY;
    for (int64_t i = n - 1; told >= 0 && i >= 0; i--) {
        int64_t slot = slot_of(slots, n_slots, values, values[i]);
        if (slot < 0) {
            told = slot;
            break;
        }
        next[i] = slots[slot] ? slots[slot] - 1 : n;
        n_used += !slots[slot];
        slots[slot] = i + 1;
        if (n_used * 4 <= n_slots) continue;
        int64_t *wider = calloc(n_slots * 4, sizeof *slots);
        for (size_t old = 0; wider && told >= 0 && old < n_slots; old++) {
            if (!slots[old]) continue;
            slot = slot_of(wider, n_slots * 4, values, values[slots[old] - 1]);
            if (slot < 0) told = slot;
            else wider[slot] = slots[old];
        }
        if (!wider) told = WITHOUT_MEMORY;
        free(slots);
        slots = wider;
        n_slots *= 4;
    }
    free(slots);
    return told;
}
