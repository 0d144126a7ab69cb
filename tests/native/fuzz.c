/* `make native-fuzz`: the algebra beneath libFuzzer, whose input is two columns of small intervals with threads.

   Beside what the sanitizers see, each answer must be that of a loop over all pairs, which is as slow as it is plain. */
#include <stdio.h>
#include <stdlib.h>

#include "../../profkit/native/algebra.c"

enum { MOST = 64, HORIZON = 300 };

static void must(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "native-fuzz: %s\n", what);
    abort();
}

typedef struct {
    int64_t start[MOST], end[MOST], n;
    int32_t thread[MOST];
} rows;

/* Rows of three bytes each: start, length, thread; in order of start, the longer first, if `is_ordered`. */
static rows rows_of(const uint8_t *data, size_t n, bool is_ordered) {
    rows made = {.n = 0};
    for (; n >= 3 && made.n < MOST; data += 3, n -= 3) {
        int64_t i = made.n++, start = data[0], end = data[0] + data[1] % 40 - (is_ordered ? 0 : 3);
        for (; is_ordered && i && (made.start[i - 1] > start || (made.start[i - 1] == start && made.end[i - 1] < end)); i--) {
            made.start[i] = made.start[i - 1];
            made.end[i] = made.end[i - 1];
            made.thread[i] = made.thread[i - 1];
        }
        made.start[i] = start;
        made.end[i] = end;
        made.thread[i] = data[2] % 4 - 1;
    }
    return made;
}

static void mark(const int64_t *start, const int64_t *end, int64_t n, bool *at) {
    memset(at, 0, HORIZON * sizeof *at);
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = start[i]; t < end[i]; t++) at[t] = true;
}

static void is_set(const int64_t *start, const int64_t *end, int64_t n, const bool *wanted, const char *what) {
    bool at[HORIZON];
    for (int64_t i = 0; i < n; i++) must(start[i] < end[i] && (!i || start[i] >= end[i - 1]), what);
    mark(start, end, n, at);
    must(!memcmp(at, wanted, sizeof at), what);
}

static void sets(const rows *a, const rows *b) {
    int64_t one[2][MOST], two[2][MOST], made[2][2 * MOST], covered[MOST];
    bool in_a[HORIZON], in_b[HORIZON], wanted[HORIZON];
    int64_t n = profkit_union(a->start, a->end, a->n, one[0], one[1]), m = profkit_union(b->start, b->end, b->n, two[0], two[1]);
    if (n < 0 || m < 0) return;
    mark(a->start, a->end, a->n, in_a);
    mark(b->start, b->end, b->n, in_b);
    is_set(one[0], one[1], n, in_a, "union");
    int64_t k = profkit_either(one[0], one[1], n, two[0], two[1], m, made[0], made[1]);
    for (int t = 0; t < HORIZON; t++) wanted[t] = in_a[t] || in_b[t];
    is_set(made[0], made[1], k, wanted, "either");
    k = profkit_both(one[0], one[1], n, two[0], two[1], m, made[0], made[1]);
    for (int t = 0; t < HORIZON; t++) wanted[t] = in_a[t] && in_b[t];
    is_set(made[0], made[1], k, wanted, "both");
    k = profkit_without(one[0], one[1], n, two[0], two[1], m, made[0], made[1]);
    for (int t = 0; t < HORIZON; t++) wanted[t] = in_a[t] && !in_b[t];
    is_set(made[0], made[1], k, wanted, "without");
    k = profkit_clipped(one[0], one[1], n, 20, 200, made[0], made[1]);
    for (int t = 0; t < HORIZON; t++) wanted[t] = in_a[t] && t >= 20 && t < 200;
    is_set(made[0], made[1], k, wanted, "clipped");
    must(profkit_covered(one[0], one[1], n, b->start, b->end, b->n, covered) == b->n, "covered");
    for (int64_t i = 0; i < b->n; i++) {
        int64_t length = 0;
        for (int64_t t = b->start[i]; t < b->end[i]; t++) length += in_a[t];
        must(b->end[i] < b->start[i] || covered[i] == length, "covered");
    }
    uint8_t inside[MOST];
    profkit_contained(one[0], one[1], n, b->start, b->n, inside);
    for (int64_t i = 0; i < b->n; i++) must(inside[i] == in_a[b->start[i]], "contained");
    for (int after = 0; after < 2; after++) {
        profkit_places(one[0], n, b->start, b->n, after, covered);
        for (int64_t i = 0; i < b->n; i++) {
            int64_t place = 0;
            for (int64_t j = 0; j < n; j++) place += after ? one[0][j] <= b->start[i] : one[0][j] < b->start[i];
            must(covered[i] == place, "places");
        }
    }
}

static void order(const rows *a) {
    int64_t row[MOST];
    if (profkit_ordered(a->end, a->n, row) < 0) return;
    for (int64_t i = 1; i < a->n; i++) {
        int64_t before = a->end[row[i - 1]], now = a->end[row[i]];
        must(before < now || (before == now && row[i - 1] < row[i]), "order");
    }
}

static void equals(const rows *a) {
    int64_t next[MOST];
    must(profkit_next_equal(a->start, a->n, next) == a->n, "next equal");
    for (int64_t i = 0; i < a->n; i++) {
        int64_t place = i + 1;
        while (place < a->n && a->start[place] != a->start[i]) place++;
        must(next[i] == place, "next equal");
    }
}

/* How many ranges of its thread are around a range: begun before it, without those ended by then. */
static int64_t depth_of(const rows *a, int64_t i) {
    int64_t depth = 0;
    for (int64_t j = 0; j < a->n; j++) {
        if (a->thread[j] != a->thread[i]) continue;
        depth += (j < i) - (a->end[j] <= a->start[i]);
    }
    return depth;
}

static void nesting(const rows *a, const rows *b) {
    int64_t row[MOST], parent[MOST];
    int32_t order[MOST];
    uint8_t is_leaf[MOST], is_top[MOST];
    if (profkit_parent_rows(a->start, a->end, a->thread, a->n, parent) < 0) return;
    for (int64_t i = 0; i < a->n; i++) {
        int64_t found = -1, depth = depth_of(a, i);
        for (int64_t j = 0; j < i && a->thread[i] >= 0; j++)
            if (depth > 0 && a->thread[j] == a->thread[i] && depth_of(a, j) == depth - 1) found = j;
        must(parent[i] == found, "parents");
    }
    must(profkit_enclosing(a->start, a->end, a->thread, a->n, b->thread, b->start, b->n, row) >= 0, "enclosing");
    for (int64_t i = 0; i < b->n; i++) {
        int64_t found = -1;
        for (int64_t j = 0; j < a->n && b->thread[i] >= 0; j++)
            if (a->thread[j] == b->thread[i] && a->start[j] <= b->start[i]) found = j;
        while (found >= 0 && a->end[found] <= b->start[i]) found = parent[found];
        must(row[i] == found, "enclosing");
    }
    if (profkit_nested(a->start, a->end, a->thread, a->n, order, is_leaf, is_top) < 0) return;
    for (int64_t i = 0; i < a->n; i++) {
        bool top = true;
        for (int64_t j = 0; j < i; j++) top = top && (a->thread[order[j]] != a->thread[order[i]] || a->end[order[j]] <= a->start[order[i]]);
        must(is_top[i] == top, "tops");
        must(profkit_outermost(a->start, a->end, a->thread, a->n, is_leaf) == a->n && is_leaf[order[i]] == top, "outermost");
        must(i == 0 || a->thread[order[i - 1]] < a->thread[order[i]] || order[i - 1] < order[i], "order");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2) return 0;
    bool is_ordered = data[0] & 1;
    size_t half = 1 + (n - 1) * data[1] / 256;
    rows a = rows_of(data + 1, half, is_ordered), b = rows_of(data + 1 + half, n - 1 - half, data[0] & 2);
    for (int64_t i = 0; i < a.n; i++) a.start[i] = larger(a.start[i], 0), a.end[i] = larger(a.end[i], 0);
    for (int64_t i = 0; i < b.n; i++) b.start[i] = larger(b.start[i], 0), b.end[i] = larger(b.end[i], 0);
    sets(&a, &b);
    nesting(&a, &b);
    order(&a);
    order(&b);
    equals(&a);
    uint8_t seen[4] = {0};
    must(profkit_seen(a.thread, a.n, 4, seen), "seen");
    for (int64_t i = 0; i < a.n; i++) must(a.thread[i] < 0 || seen[a.thread[i]], "seen");
    return 0;
}
