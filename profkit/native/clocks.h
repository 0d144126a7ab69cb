/* The clocks of host and streams through launches and waits, one after the other (`timeline/replay/clocks.py`). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { WAIT = -1, MOST_LANES = 16 };

/* `clock[0]` is the host's, `clock[1 + lane]` a stream's; each begins and ends there. Times are whole numbers of ns below
   2^53, so that no order of adding rounds. */
static bool clocks_run(int64_t n, int n_lanes, const int64_t *spent, const uint8_t *is_gone, const int8_t *lane,
                       const double *reach, const double *const *behind, double *clock) {
    if (n_lanes > MOST_LANES) return false;
    for (int64_t i = 0; i < n; i++) {
        clock[0] += (double)spent[i];
        if (lane[i] >= n_lanes || lane[i] < WAIT) return false;
        if (is_gone[i]) continue;
        double until = clock[0] + reach[i];
        for (int other = 0; other < n_lanes; other++) {
            double after = clock[1 + other] + behind[other][i];
            until = after > until ? after : until;
        }
        clock[1 + lane[i]] = until;
    }
    return true;
}
