/* Ranges within each other: of each thread in order of start, the longer first. */
#pragma once

#include "sets.h"

enum { DEEPEST = INT16_MAX, MOST_STEPS_UP = 256, MOST_THREADS = 1 << 20, NO_ROW = -1 };

/* What is made anew for each thread, in memory that is there once. */
typedef struct {
    int64_t *open; /* the ends of ranges that have begun, the earliest on top */
    int64_t n_open;
    int32_t *latest; /* the latest range of each depth */
    int64_t n_depths;
} nest;

static bool nest_of(nest *nest, int64_t n) {
    nest->open = malloc((size_t)(n + 1) * sizeof(int64_t));
    nest->latest = malloc((DEEPEST + 1) * sizeof(int32_t));
    nest->n_open = nest->n_depths = 0;
    return nest->open && nest->latest;
}

static void nest_free(nest *nest) {
    free(nest->open);
    free(nest->latest);
}

static void opened(nest *nest, int64_t end) {
    int64_t i = nest->n_open++;
    for (; i > 0 && nest->open[(i - 1) / 2] > end; i = (i - 1) / 2) nest->open[i] = nest->open[(i - 1) / 2];
    nest->open[i] = end;
}

static void closed(nest *nest) {
    int64_t last = nest->open[--nest->n_open], i = 0;
    for (int64_t child; (child = 2 * i + 1) < nest->n_open; i = child) {
        if (child + 1 < nest->n_open && nest->open[child + 1] < nest->open[child]) child++;
        if (nest->open[child] >= last) break;
        nest->open[i] = nest->open[child];
    }
    nest->open[i] = last;
}

/* The position of the range around each of one thread, -1 for none: the latest before it that is one level up. Its depth
   is how many began before it, without those that had ended when it began: empty ones of that time among them, itself
   and later ones too, as `host._parents` counts. */
static int64_t parents(nest *nest, set ranges, int32_t *parent) {
    const int64_t *start = ranges.start, *end = ranges.end;
    int64_t n_empty = 0, group = 0; /* empty ranges of this time that are still to come, and where it ends */
    nest->n_open = nest->n_depths = 0;
    for (int64_t i = 0; i < ranges.n; i++) {
        if (end[i] < start[i] || (i && start[i] < start[i - 1])) return NOT_ORDERED;
        while (nest->n_open && nest->open[0] <= start[i]) closed(nest);
        if (i == group) {
            for (; group < ranges.n && start[group] == start[i]; group++) n_empty += end[group] == start[group];
        }
        int64_t depth = smaller(nest->n_open - n_empty, DEEPEST);
        parent[i] = depth > 0 && depth <= nest->n_depths ? nest->latest[depth - 1] : -1;
        for (; depth >= nest->n_depths; nest->n_depths++) nest->latest[nest->n_depths] = -1;
        if (depth >= 0) nest->latest[depth] = (int32_t)i;
        if (end[i] == start[i]) n_empty--;
        else opened(nest, end[i]);
    }
    return ranges.n;
}

/* Rows of each thread together, in their order; `first[code]` is where those of a code begin. Negative codes are none. */
typedef struct {
    int64_t n_threads, n;
    int64_t *first;
    int32_t *order; /* NULL where one thread has all rows */
    int64_t *start, *end; /* in that order, of memory of their own unless there is no order */
    bool is_own;
} grouped;

static void grouped_free(grouped *g) {
    free(g->first);
    free(g->order);
    if (g->is_own) {
        free(g->start);
        free(g->end);
    }
}

static int64_t grouped_of(grouped *g, set ranges, const int32_t *thread) {
    *g = (grouped){.n_threads = 0};
    int32_t most = -1;
    for (int64_t i = 0; i < ranges.n; i++) most = thread[i] > most ? thread[i] : most;
    if (most >= MOST_THREADS || ranges.n >= INT32_MAX) return NOT_ORDERED;
    g->n_threads = (int64_t)most + 1;
    if (!(g->first = calloc((size_t)g->n_threads + 2, sizeof(int64_t)))) return WITHOUT_MEMORY;
    for (int64_t i = 0; i < ranges.n; i++) g->first[thread[i] < 0 ? 0 : thread[i] + 1] += thread[i] >= 0;
    bool is_one = most >= 0 && g->first[most + 1] == ranges.n;
    for (int64_t code = 0; code < g->n_threads; code++) g->first[code + 1] += g->first[code];
    g->n = g->first[g->n_threads];
    if (is_one) {
        g->start = (int64_t *)ranges.start;
        g->end = (int64_t *)ranges.end;
        return g->n;
    }
    g->is_own = true;
    size_t size = (size_t)g->n + 1;
    g->order = malloc(size * sizeof(int32_t));
    g->start = malloc(size * sizeof(int64_t));
    g->end = malloc(size * sizeof(int64_t));
    int64_t *next = malloc(((size_t)g->n_threads + 1) * sizeof(int64_t));
    if (!g->order || !g->start || !g->end || !next) {
        free(next);
        return WITHOUT_MEMORY;
    }
    memcpy(next, g->first, (size_t)g->n_threads * sizeof(int64_t));
    for (int64_t i = 0; i < ranges.n; i++) {
        if (thread[i] < 0) continue;
        int64_t place = next[thread[i]]++;
        g->order[place] = (int32_t)i;
        g->start[place] = ranges.start[i];
        g->end[place] = ranges.end[i];
    }
    free(next);
    return g->n;
}

static inline set of_thread(const grouped *g, int64_t code) {
    int64_t first = g->first[code];
    return (set){g->start + first, g->end + first, g->first[code + 1] - first};
}

static inline int64_t row_of(const grouped *g, int64_t place) { return g->order ? g->order[place] : place; }

/* The row of the range around each range of its thread, right around it. */
static int64_t parent_rows(set ranges, const int32_t *thread, int64_t *out) {
    grouped g;
    nest nest = {0};
    int32_t *parent = malloc((size_t)(ranges.n + 1) * sizeof(int32_t));
    int64_t told = grouped_of(&g, ranges, thread);
    if (told >= 0 && (!parent || !nest_of(&nest, g.n))) told = WITHOUT_MEMORY;
    for (int64_t i = 0; i < ranges.n; i++) out[i] = NO_ROW;
    for (int64_t code = 0; told >= 0 && code < g.n_threads; code++) {
        set mine = of_thread(&g, code);
        told = parents(&nest, mine, parent);
        for (int64_t i = 0; i < told; i++) {
            if (parent[i] >= 0) out[row_of(&g, g.first[code] + i)] = row_of(&g, g.first[code] + parent[i]);
        }
    }
    nest_free(&nest);
    grouped_free(&g);
    free(parent);
    return told;
}

/* The row of the innermost range that runs on a thread at a time, `NO_ROW` for none, of each of `m`. */
static int64_t enclosing(set ranges, const int32_t *thread, int64_t m, const int32_t *at_thread, const int64_t *at, int64_t *out) {
    grouped g;
    nest nest = {0};
    int64_t told = grouped_of(&g, ranges, thread);
    int32_t *parent = malloc((size_t)(ranges.n + 1) * sizeof(int32_t));
    int64_t *hint = calloc((size_t)g.n_threads + 1, sizeof(int64_t));
    if (told >= 0 && (!parent || !hint || !nest_of(&nest, g.n))) told = WITHOUT_MEMORY;
    for (int64_t code = 0; told >= 0 && code < g.n_threads; code++) {
        told = parents(&nest, of_thread(&g, code), parent + g.first[code]);
    }
    for (int64_t i = 0; told >= 0 && i < m; i++) {
        int64_t code = at_thread[i], place = -1, first = 0;
        if (code >= 0 && code < g.n_threads) {
            set mine = of_thread(&g, code);
            first = g.first[code];
            place = (hint[code] = place_of(mine.start, mine.n, at[i], true, hint[code])) - 1;
            for (int up = 0; up < MOST_STEPS_UP && place >= 0 && mine.end[place] <= at[i]; up++) place = parent[first + place];
        }
        out[i] = place >= 0 ? row_of(&g, first + place) : NO_ROW;
    }
    free(hint);
    free(parent);
    nest_free(&nest);
    grouped_free(&g);
    return told;
}

/* Which ranges no other of their thread encloses, in one pass: `reach` is until when those before them run. */
static int64_t outermost(set ranges, const int32_t *thread, uint8_t *is_top) {
    int32_t most = -1;
    for (int64_t i = 0; i < ranges.n; i++) {
        if (thread[i] < 0) return NOT_ORDERED; /* as `nested` refuses them */
        most = thread[i] > most ? thread[i] : most;
    }
    if (most >= MOST_THREADS) return NOT_ORDERED;
    int64_t *reach = malloc(((size_t)most + 2) * sizeof(int64_t));
    if (!reach) return WITHOUT_MEMORY;
    for (int64_t code = 0; code <= most; code++) reach[code] = INT64_MIN;
    for (int64_t i = 0; i < ranges.n; i++) {
        int64_t *until = &reach[thread[i]];
        is_top[i] = ranges.start[i] >= *until;
        *until = larger(*until, ranges.end[i]);
    }
    free(reach);
    return ranges.n;
}

/* Rows in order of thread; which of these enclose no other, and which no other encloses. */
static int64_t nested(set ranges, const int32_t *thread, int32_t *order, uint8_t *is_leaf, uint8_t *is_top) {
    grouped g;
    int64_t told = grouped_of(&g, ranges, thread);
    if (told >= 0 && told != ranges.n) told = NOT_ORDERED; /* negative codes */
    for (int64_t code = 0; told >= 0 && code < g.n_threads; code++) {
        set mine = of_thread(&g, code);
        int64_t reach = INT64_MIN, first = g.first[code];
        for (int64_t i = 0; i < mine.n; i++) {
            order[first + i] = (int32_t)row_of(&g, first + i);
            is_leaf[first + i] = i + 1 == mine.n || mine.start[i + 1] >= mine.end[i];
            is_top[first + i] = i == 0 || mine.start[i] >= reach;
            reach = larger(reach, mine.end[i]);
        }
    }
    grouped_free(&g);
    return told;
}
