"""`python -m bench.gpu`: everything that needs a GPU, in one call of under ten minutes, offline.

The workloads' regimes captured and judged; launches counted against kernels; four interventions measured beside what
the verdict promised; ncu on the hottest kernel and what triage makes of it; what the profiler costs. `results.json`
and `captures.tar.gz` in `--out` are all that need be kept. Each stage has a time of its own: one that fails or runs
out is said, and the others go on. `--device cpu --quick` tries the call itself where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

REPO: Final = Path(__file__).resolve().parent.parent
REGIMES: Final = {
    "baseline": None,
    "data": "data-bound",
    "overhead": "overhead-bound",
    "kernel": "kernel-bound",
}
"""What each regime's verdict should be; of the baseline nothing is asked."""
MOST_BYTES: Final = 12 * 2**20
"""Of the archive of captures: what a lent machine sends back of one file is bounded."""

Stage = Callable[["Call"], Any]


class Call:
    """One call: where things go, until when, on which device."""

    def __init__(self, out: Path, device: str, *, quick: bool, budget_s: float) -> None:
        """All times in seconds."""
        self.out = out
        self.device = device
        self.quick = quick
        self.ends = time.monotonic() + budget_s
        self.work = out / "work"
        self.work.mkdir(parents=True, exist_ok=True)

    @property
    def left_s(self) -> float:
        """What is left of the call's time, at least a second."""
        return max(self.ends - time.monotonic(), 1.0)

    @property
    def n_pairs(self) -> int:
        """How often both sides of an intervention run."""
        return 2 if self.quick else 5

    def run(self, *command: str, most_s: float = 120.0, **env: str) -> subprocess.CompletedProcess[str]:
        """The output of a command, run in the repository; raises TimeoutExpired."""
        return subprocess.run(
            command,
            cwd=REPO,
            env=os.environ | {"NO_COLOR": "1"} | env,
            capture_output=True,
            text=True,
            timeout=min(most_s, self.left_s),
            check=False,
        )

    def profkit(self, *arguments: str, most_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """The output of a profkit command."""
        return self.run(sys.executable, "-m", "profkit", *arguments, most_s=most_s)

    def workload(self, regime: str, *arguments: str) -> list[str]:
        """The command of a workload on this device."""
        return [sys.executable, "-m", "workloads.train", "--regime", regime, "--device", self.device, *arguments]

    def step_ns(self, regime: str, *arguments: str, **env: str) -> float:
        """The median step of one unprofiled run, ns; raises ValueError with what it said if it failed."""
        done = self.run(*self.workload(regime, "--json", *arguments), **env)
        if done.returncode:
            raise ValueError(last_line(done))
        return 1e6 * float(json.loads(done.stdout.splitlines()[-1])["step_p50_ms"])


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last thing that a command said on stderr."""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]


def machine(call: Call) -> dict[str, Any]:
    """What it runs on; no name of the machine."""
    smi = shutil.which("nvidia-smi")
    fields = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit"
    told = call.run(smi, f"--query-gpu={fields}", "--format=csv,noheader").stdout.strip() if smi else ""
    torch = call.run(sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda)").stdout.strip()
    doctor = call.profkit("doctor")
    return {
        "gpu": told,
        "torch": torch,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "doctor": doctor.stdout[-4000:],
        "tools": {name: bool(shutil.which(name)) for name in ("nsys", "ncu")},
    }


def captures(call: Call) -> dict[str, Any]:
    """Each regime captured and judged, with launches against kernels and the profiler's cost."""
    return {regime: _captured(call, regime, wanted) for regime, wanted in REGIMES.items()}


def _captured(call: Call, regime: str, wanted: str | None) -> dict[str, Any]:
    folder = call.work / regime
    done = call.profkit("capture", "-o", str(folder), "--overwrite", "--", *call.workload(regime))
    if done.returncode:
        return {"error": last_line(done)}
    told = call.profkit("triage", str(folder), "-f", "json")
    if told.returncode:
        return {"error": last_line(told)}
    report = json.loads(told.stdout)
    verdict, rank = report["verdict"], report["ranks"][0]
    plain, recorded = rank.get("unprofiled_step_ns"), (rank.get("steps") or {}).get("mean_ns")
    return {
        "verdict": verdict["bottleneck"],
        "is_right": None if wanted is None else verdict["bottleneck"] == wanted,
        "headline": verdict["headline"],
        "confidence": verdict["confidence"],
        "step_ns": verdict["step_ns"],
        "ceiling": verdict["speedup_ceiling"],
        "device": rank["devices"][0],
        "profiler_cost": recorded / plain - 1 if plain and recorded else None,
        "launches": _launches(folder),
        "bytes": {file.name: file.stat().st_size for file in sorted(folder.glob("*.json.gz"))},
    }


def _launches(folder: Path) -> dict[str, int]:
    """Device work and what launched it, counted from the trace's own rows."""
    import numpy as np

    from profkit import read_trace
    from profkit.model.trace import CallKind

    file = min(folder.glob("*.pt.trace.json.gz"), key=lambda one: len(one.name))
    trace = read_trace(str(file))
    linked = trace.gpu.launch_row >= 0
    kinds = trace.calls.kind
    return {
        "device_rows": len(trace.gpu),
        "linked": int(linked.sum()),
        "launch_calls": int(np.isin(kinds, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)).sum()),
        "sync_calls": int((kinds == CallKind.SYNC).sum()),
        "starts_before_launch": int(
            (trace.gpu.start_ns[linked] < trace.calls.start_ns[trace.gpu.launch_row[linked]]).sum()
        ),
    }


def interventions(call: Call) -> dict[str, Any]:
    """What a change gives, measured in turn without the profiler; the verdict's ceiling stands beside it."""
    trials: dict[str, tuple[str, Sequence[str], dict[str, str], Sequence[str], dict[str, str]]] = {
        "tf32": ("kernel", (), {}, (), {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}),
        "bf16": ("kernel", (), {}, ("--dtype", "bf16"), {}),
        "workers": ("data", (), {}, ("--num-workers", "8"), {}),
        "fewer operators": ("overhead", (), {}, ("--rounds", "1"), {}),
    }
    return {name: _trial(call, *given) for name, given in trials.items()}


def _trial(
    call: Call, regime: str, before: Sequence[str], env: dict[str, str], after: Sequence[str], changed: dict[str, str]
) -> dict[str, Any]:
    sides: dict[str, list[float]] = {"before": [], "after": []}
    try:
        for _ in range(call.n_pairs):
            sides["before"].append(call.step_ns(regime, *before, **env))
            sides["after"].append(call.step_ns(regime, *after, **changed))
    except (ValueError, subprocess.TimeoutExpired) as error:
        return {"regime": regime, "error": str(error)[:300], **sides}
    middle = {side: statistics.median(values) for side, values in sides.items()}
    return {"regime": regime, "gain": 1 - middle["after"] / middle["before"], **sides}


def kernels(call: Call) -> dict[str, Any]:
    """Nsight Compute on the kernel regime's hottest kernel, then both recordings together."""
    if shutil.which("ncu") is None:
        return {"skipped": "ncu is not on this machine"}
    folder, out = call.work / "kernel", call.work / "ncu"
    job = call.workload("kernel", "--steps", "32")
    done = call.profkit("ncu", "--from", str(folder), "-o", str(out), "--overwrite", "--", *job, most_s=180)
    report = next(iter(sorted(out.glob("*.ncu-rep"))), None)
    if report is None:
        return {"error": last_line(done)}
    shutil.copy(report, call.work / "kernel.ncu-rep")
    page = call.profkit("triage", str(folder), str(report), most_s=60)
    csv = call.run("ncu", "--import", str(report), "--csv", "--page", "raw", most_s=60)
    (call.work / "kernel.ncu.csv").write_text(csv.stdout)
    return {
        "bytes": report.stat().st_size,
        "page": page.stdout[-6000:],
        "error": last_line(page) * bool(page.returncode),
    }


def slopes(call: Call) -> dict[str, Any]:
    """Causal slopes of two regimes, without a profiler."""
    found = {}
    for regime in ("data", "overhead"):
        out = call.work / f"probe-{regime}.json"
        done = call.profkit("probe", "-o", str(out), "--", *call.workload(regime, "--steps", "200"), most_s=120)
        found[regime] = json.loads(out.read_text()) if out.is_file() else {"error": last_line(done)}
    return found


def trials(call: Call) -> dict[str, Any]:
    """What the verdict predicts of changes, and what `profkit try` measures of them."""
    found = {}
    for regime in ("kernel", "data"):
        out = call.work / f"try-{regime}.json"
        options = ("--yes", "-n", "3", "--timed-steps", "25", "--report-of", str(call.work / regime), "-o", str(out))
        done = call.profkit("try", *options, "--", *call.workload(regime, "--steps", "80"), most_s=150)
        found[regime] = json.loads(out.read_text()) if out.is_file() else {"error": last_line(done)}
    return found


STAGES: Final[dict[str, Stage]] = {
    "machine": machine,
    "captures": captures,
    "kernels": kernels,
    "interventions": interventions,
    "slopes": slopes,
    "trials": trials,
}


def archive(call: Call) -> list[str]:
    """The captures packed, the smallest first, as far as there is room; the names of those that had none."""
    files = sorted((one for one in call.work.rglob("*") if one.is_file()), key=lambda one: one.stat().st_size)
    left, total = [], 0
    with tarfile.open(call.out / "captures.tar.gz", "w:gz") as packed:
        for file in files:
            total += file.stat().st_size
            if total > MOST_BYTES:
                left.append(file.name)
            else:
                packed.add(file, str(file.relative_to(call.work)))
    return left


def main() -> int:
    """Run the stages, in order of worth; the exit code says whether every one came to an answer."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=REPO / "out" / "gpu")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="two pairs of each intervention instead of five")
    parser.add_argument("--budget-s", type=float, default=540.0, help="seconds for all stages (540)")
    parser.add_argument("--only", choices=tuple(STAGES), nargs="+", default=tuple(STAGES))
    given = parser.parse_args()
    call = Call(given.out.absolute(), given.device, quick=given.quick, budget_s=given.budget_s)
    results: dict[str, Any] = {"device": given.device}
    failed = []
    for name in given.only:
        began = time.monotonic()
        try:
            results[name] = STAGES[name](call)
        except Exception as error:  # noqa: BLE001 - a stage that fails must not cost the others their machine
            results[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
            failed.append(name)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        (call.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    results["left_out"] = archive(call)
    (call.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(f"{given.out}: results.json, captures.tar.gz" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
