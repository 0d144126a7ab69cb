/* The algebra of `model/arrays.py` in one pass each. A set is ordered, disjoint and without empty intervals; what is none
   is refused, and numpy's way, which reads anything, answers. */
#pragma once

#include "search.h"

/* Two columns of intervals. */
typedef struct {
    const int64_t *start, *end;
    int64_t n;
} set;

/* Where a set is written, interval by interval. */
typedef struct {
    int64_t *start, *end, n;
} made;

static inline void put(made *out, int64_t start, int64_t end) {
    out->start[out->n] = start;
    out->end[out->n++] = end;
}

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t difference(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); } /* wraps as numpy's */
static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Whether an interval may follow one that ended then. */
static inline bool fits(const set *a, int64_t i) { return a->end[i] > a->start[i] && (i == 0 || a->start[i] >= a->end[i - 1]); }

static inline void reach_on(made *out, int64_t start, int64_t end) {
    if (out->n && start <= out->end[out->n - 1]) out->end[out->n - 1] = larger(out->end[out->n - 1], end);
    else put(out, start, end);
}

/* The union of intervals in order of their starts; empty ones vanish, in any order. */
static int64_t union_of(set a, made *out) {
    int64_t last = INT64_MIN;
    for (int64_t i = 0; i < a.n; i++) {
        if (a.end[i] <= a.start[i]) continue;
        if (a.start[i] < last) return NOT_ORDERED;
        last = a.start[i];
        reach_on(out, a.start[i], a.end[i]);
    }
    return out->n;
}

static int64_t either_of(set a, set b, made *out) {
    int64_t i = 0, j = 0;
    while (i < a.n || j < b.n) {
        bool is_a = j == b.n || (i < a.n && a.start[i] <= b.start[j]);
        const set *from = is_a ? &a : &b;
        int64_t at = is_a ? i++ : j++;
        if (!fits(from, at)) return NOT_ORDERED;
        reach_on(out, from->start[at], from->end[at]);
    }
    return out->n;
}

static int64_t both_of(set a, set b, made *out) {
    int64_t i = 0, j = 0;
    while (i < a.n && j < b.n) {
        if (!fits(&a, i) || !fits(&b, j)) return NOT_ORDERED;
        int64_t start = larger(a.start[i], b.start[j]), end = smaller(a.end[i], b.end[j]);
        if (start < end) put(out, start, end);
        if (a.end[i] <= b.end[j]) i++;
        else j++;
    }
    return out->n;
}

/* What of `a` lies outside `b`. */
static int64_t without(set a, set b, made *out) {
    int64_t j = 0;
    for (int64_t i = 0; i < a.n; i++) {
        if (!fits(&a, i)) return NOT_ORDERED;
        int64_t from = a.start[i];
        for (; j < b.n && b.start[j] < a.end[i]; j++) {
            if (!fits(&b, j)) return NOT_ORDERED;
            if (b.end[j] <= from) continue;
            if (b.start[j] > from) put(out, from, b.start[j]);
            from = b.end[j];
            if (from >= a.end[i]) break; /* it may reach into the next */
        }
        if (from < a.end[i]) put(out, from, a.end[i]);
    }
    return out->n;
}

static int64_t clipped(set a, int64_t low, int64_t high, made *out) {
    for (int64_t i = 0; i < a.n; i++) {
        int64_t start = larger(a.start[i], low), end = smaller(a.end[i], high);
        if (end > start) put(out, start, end);
    }
    return out->n;
}

/* Which times lie in a set. */
static void contained(set a, const int64_t *at, int64_t m, uint8_t *inside) {
    int64_t row = 0;
    for (int64_t i = 0; i < m; i++) {
        row = place_of(a.start, a.n, at[i], true, row);
        inside[i] = row > 0 && at[i] < a.end[row - 1];
    }
}

/* How much of a set lies before each time: sums up to each interval, made once. */
typedef struct {
    set a;
    int64_t *before;
    int64_t hint;
} covered;

static bool covered_of(covered *c, set a) {
    *c = (covered){.a = a, .before = malloc((size_t)(a.n + 1) * sizeof(int64_t))};
    if (!c->before) return false;
    uint64_t sum = 0; /* wraps where numpy's does */
    for (int64_t i = 0; i < a.n; i++) {
        c->before[i] = (int64_t)sum;
        sum += (uint64_t)a.end[i] - (uint64_t)a.start[i];
    }
    c->before[a.n] = (int64_t)sum;
    return true;
}

static inline int64_t covered_until(covered *c, int64_t at) {
    int64_t row = c->hint = place_of(c->a.start, c->a.n, at, true, c->hint);
    if (row == 0) return 0;
    int64_t end = c->a.end[row - 1];
    return end > at ? difference(c->before[row], difference(end, at)) : c->before[row];
}
