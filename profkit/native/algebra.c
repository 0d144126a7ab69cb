/* Times of large traces: sets, places, nesting, clocks, in one pass each and without columns in between.

   What each function gives is what numpy's way in `model/arrays.py`, `timeline/host.py` and `timeline/replay/clocks.py`
   gives, to the bit; what it is not certain of it refuses (a negative answer), and numpy's way answers. */
#include "clocks.h"
#include "nesting.h"
#include "order.h"

#define PUBLIC __attribute__((visibility("default")))
typedef int64_t *out;
typedef const int64_t *in;

/* Sets to a set; room for as many intervals as all of them have. The number of intervals. */
PUBLIC int64_t profkit_union(in start, in end, int64_t n, out to, out until) {
    return union_of((set){start, end, n}, &(made){to, until, 0});
}

PUBLIC int64_t profkit_either(in start, in end, int64_t n, in start_b, in end_b, int64_t m, out to, out until) {
    return either_of((set){start, end, n}, (set){start_b, end_b, m}, &(made){to, until, 0});
}

PUBLIC int64_t profkit_both(in start, in end, int64_t n, in start_b, in end_b, int64_t m, out to, out until) {
    return both_of((set){start, end, n}, (set){start_b, end_b, m}, &(made){to, until, 0});
}

PUBLIC int64_t profkit_without(in start, in end, int64_t n, in start_b, in end_b, int64_t m, out to, out until) {
    return without((set){start, end, n}, (set){start_b, end_b, m}, &(made){to, until, 0});
}

PUBLIC int64_t profkit_clipped(in start, in end, int64_t n, int64_t low, int64_t high, out to, out until) {
    return clipped((set){start, end, n}, low, high, &(made){to, until, 0});
}

PUBLIC void profkit_places(in ordered, int64_t n, in values, int64_t m, int after, out found) {
    places(ordered, n, values, m, after, found);
}

PUBLIC int64_t profkit_ordered(in values, int64_t n, out row) { return ordered(values, n, row); }

PUBLIC int64_t profkit_next_equal(in values, int64_t n, out next) { return next_equal(values, n, next); }

PUBLIC void profkit_contained(in start, in end, int64_t n, in at, int64_t m, uint8_t *inside) {
    contained((set){start, end, n}, at, m, inside);
}

/* How much of a set lies before each time, or between two of each pair where there are two columns. */
PUBLIC int64_t profkit_covered(in start, in end, int64_t n, in from, in until, int64_t m, out length) {
    covered c, d;
    if (!covered_of(&c, (set){start, end, n})) return WITHOUT_MEMORY;
    d = c; /* with a hint of its own */
    for (int64_t i = 0; i < m; i++) length[i] = difference(covered_until(&c, until[i]), from ? covered_until(&d, from[i]) : 0);
    free(c.before);
    return m;
}

PUBLIC int64_t profkit_parent_rows(in start, in end, const int32_t *thread, int64_t n, out row) {
    return parent_rows((set){start, end, n}, thread, row);
}

PUBLIC int64_t profkit_enclosing(in start, in end, const int32_t *thread, int64_t n, const int32_t *at_thread, in at, int64_t m, out row) {
    return enclosing((set){start, end, n}, thread, m, at_thread, at, row);
}

PUBLIC int64_t profkit_nested(in start, in end, const int32_t *thread, int64_t n, int32_t *order, uint8_t *is_leaf, uint8_t *is_top) {
    return nested((set){start, end, n}, thread, order, is_leaf, is_top);
}

PUBLIC int64_t profkit_outermost(in start, in end, const int32_t *thread, int64_t n, uint8_t *is_top) {
    return outermost((set){start, end, n}, thread, is_top);
}

PUBLIC int profkit_clocks(int64_t n, int n_lanes, in spent, const uint8_t *is_gone, const int8_t *lane, const double *reach,
                          const double *const *behind, double *clock) {
    return clocks_run(n, n_lanes, spent, is_gone, lane, reach, behind, clock);
}

/* Which codes from 0 on occur: a byte for each of `n_codes`; false where there is a greater one. */
PUBLIC int profkit_seen(const int32_t *codes, int64_t n, int64_t n_codes, uint8_t *seen) {
    for (int64_t i = 0; i < n; i++) {
        if (codes[i] < 0) continue;
        if (codes[i] >= n_codes) return false;
        seen[codes[i]] = 1;
    }
    return true;
}
