"""HTA's breakdowns of the traces in a folder, the mean over ranks, as one line of JSON; run as a child process."""

from __future__ import annotations

import json
import os
import sys
import warnings


def main() -> None:
    """Analyses the folder named by the only argument."""
    warnings.simplefilter("ignore")  # pandas deprecations, one line each
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # else it loses a part of each short kernel
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
    temporal = analysis.get_temporal_breakdown(visualize=False)
    kinds = analysis.get_gpu_kernel_breakdown(visualize=False)[0]
    totals = dict(zip(kinds["kernel_type"], kinds["sum"], strict=True))
    parts = {
        "compute": float(temporal["compute_time_pctg"].mean()),
        "idle": float(temporal["idle_time_pctg"].mean()),
        "other": float(temporal["non_compute_time_pctg"].mean()),
        "communication": float(totals.get("COMMUNICATION", 0.0)),
        "memory": float(totals.get("MEMORY", 0.0)),
    }
    print(f"\n{json.dumps(parts)}", flush=True)


if __name__ == "__main__":
    main()
