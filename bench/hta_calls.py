"""HTA's loading and its temporal, idle, kernel and overlap calls on one trace; run as a child process."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable


def main() -> None:
    """Analyse the folder named by the only argument; the last line printed is JSON, with seconds."""
    warnings.simplefilter("ignore")  # pandas deprecations, one line each
    clock = time.perf_counter
    start_s = clock()
    from hta.trace_analysis import TraceAnalysis

    imported_s = clock()
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    ranks = analysis.t.get_ranks()
    loaded_s = clock()
    calls: dict[str, Callable[[], object]] = {
        "temporal": lambda: analysis.get_temporal_breakdown(visualize=False),
        "idle": lambda: analysis.get_idle_time_breakdown(ranks=ranks, visualize=False),
        "kernels": lambda: analysis.get_gpu_kernel_breakdown(visualize=False),
        "overlap": lambda: analysis.get_comm_comp_overlap(visualize=False),
    }
    calls_s = {}
    for name, call in calls.items():
        begin_s = clock()
        call()
        calls_s[name] = clock() - begin_s
    result = {"import_s": imported_s - start_s, "load_s": loaded_s - imported_s, "calls_s": calls_s}
    print()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
