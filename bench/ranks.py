"""`make bench-ranks`: thousands of simulated ranks of 2 MB and hundreds of 20 MB, through processes and clusters.

What is simulated stands in `bench.simulated`. Every run is a process of its own; its peak RSS is without its workers.
Some are killed in the middle and resumed, one loses a worker, one has a rank on a slow disk, one has its workers on two
other hosts (network namespaces). Prints what a rank costs, and what 10,000 ranks would take at that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import REPO_ROOT
from profkit.ranks.run.store import SUFFIX
from workloads.netlab.hosts import lab
from workloads.netlab.rights import why_not

LATE_RANK, LATE_US = 3, 12_000
MOST_PARENT_MB, MOST_GROWTH = 250, 0.10
"""What the parent may take with the most ranks, and by how much a rank may cost more time among them."""
_SLOW_S = 10.0
_CHILD = "bench.ranks_child"
_FLEET, _FLEET_MB, _FLEET_CORES = 10_000, 200, 64


@dataclass(frozen=True, kw_only=True)
class Size:
    """Ranks of one size: the kernels of a step and the kinds of ranks (`bench.simulated`)."""

    n_ranks: int
    mb: int
    kernels: int
    kinds: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """One triage of ranks, in a process of its own."""

    name: str
    n_ranks: int
    wall_s: float
    first_s: float
    """Until the first rank was done: workers begin, and read one."""
    judged_s: float
    """After the last rank was done: the parent alone."""
    peak_bytes: int
    n_kept: int
    n_failed: int
    verdict: str

    @property
    def rank_ms(self) -> float:
        """Wall time of a rank without the start of the workers."""
        return (self.wall_s - self.first_s) / (self.n_ranks - 1) * 1e3


def main() -> int:
    """Run all and print; the exit code is 1 where a run does not say what was simulated, or a bound is missed."""
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="profkit-ranks-", dir=options.out))
    many = Size(n_ranks=options.many, mb=2, kernels=240, kinds=64)
    large = Size(n_ranks=options.large, mb=20, kernels=2_400, kinds=4)
    try:
        faults = []
        if options.many:
            faults += _many(many, folder, is_brief=options.brief)
        if options.large:
            faults += _large(large, folder, is_brief=options.brief)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for fault in faults:
        print(f"WRONG: {fault}")
    return int(bool(faults))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ranks", description=__doc__)
    parser.add_argument("--many", type=int, default=4_096, help="ranks of 2 MB, 0 for none (4,096)")
    parser.add_argument("--large", type=int, default=512, help="ranks of 20 MB, 0 for none (512)")
    parser.add_argument("--brief", action="store_true", help="two workers alone: what a rank costs")
    parser.add_argument(
        "--out", type=Path, help="where the traces are written for the time of the run (330 and 600 MB)"
    )
    return parser.parse_args()


def _many(size: Size, folder: Path, *, is_brief: bool) -> list[str]:
    """Ranks of 2 MB: the parent's memory and a rank's time with a sixteenth, a quarter and all of them."""
    runs = []
    for n_ranks in sorted({max(size.n_ranks // 16, 8), max(size.n_ranks // 4, 8), size.n_ranks}):
        paths = _written(
            Size(n_ranks=n_ranks, mb=size.mb, kernels=size.kernels, kinds=size.kinds), folder / f"{n_ranks}"
        )
        runs.append(_run("2 workers", paths))
    few, most = runs[0], runs[-1]
    faults: list[str] = []
    if not is_brief:
        slow = sorted((folder / f"{few.n_ranks}").iterdir())
        runs.append(_run(f"one file takes {_SLOW_S:.0f} s", slow, slow_s=_SLOW_S))
        runs.append(_over_hosts(slow))
        runs.append(_killed_and_resumed(paths, folder / "kept-many", faults))
        runs.append(_run("cluster of 2, one killed", paths, is_cluster=True))
    _print(runs)
    growth = most.rank_ms / few.rank_ms - 1
    kb = (most.peak_bytes - few.peak_bytes) / max(most.n_ranks - few.n_ranks, 1) / 1e3
    alone_ms = most.judged_s / most.n_ranks * 1e3
    print(
        f"a rank of {size.mb} MB: {few.rank_ms:.1f} ms among {few.n_ranks:,}, {most.rank_ms:.1f} ms among"
        f" {most.n_ranks:,} ({growth:+.0%}, allowed {MOST_GROWTH:+.0%}); the parent alone {alone_ms:.1f} ms and"
        f" {kb:.0f} kB of it; parent's peak {most.peak_bytes / 1e6:.0f} MB (allowed {MOST_PARENT_MB})\n"
    )
    if most.peak_bytes > MOST_PARENT_MB * 1e6:
        faults.append(f"the parent of {most.n_ranks:,} ranks takes {most.peak_bytes / 1e6:.0f} MB")
    if growth > MOST_GROWTH:
        faults.append(f"a rank takes {growth:.0%} more time among {most.n_ranks:,}")
    return faults + _faults_of(runs)


def _large(size: Size, folder: Path, *, is_brief: bool) -> list[str]:
    """Ranks of 20 MB, and the bill."""
    paths = _written(size, folder / "large")
    runs = [_run("2 workers", paths)]
    faults: list[str] = []
    if not is_brief:
        runs.append(_run("1 worker", paths[: max(size.n_ranks // 8, 8)], workers=1))
        runs.append(_killed_and_resumed(paths, folder / "kept-large", faults))
        runs.append(_run("2 workers, all kept", paths, cache=folder / "kept-large"))
        runs.append(_run("cluster of 2, one killed", paths, is_cluster=True))
    _print(runs)
    _print_bill(runs[0], size)
    return faults + _faults_of(runs)


def _print_bill(two: Run, size: Size) -> None:
    """What 10,000 ranks would take at what a rank cost here: extrapolated, by text read and ranks judged."""
    read_s = 2 * (two.wall_s - two.first_s - two.judged_s) / (two.n_ranks - 1)
    per_gb_s = read_s / size.mb * 1e3
    judged_ms = two.judged_s / two.n_ranks * 1e3
    worker_s = _FLEET * _FLEET_MB / 1e3 * per_gb_s
    print(
        f"a rank of {size.mb} MB: {read_s:.2f} s of a worker, {per_gb_s:.1f} s per GB of text; judged in"
        f" {judged_ms:.1f} ms\n{_FLEET:,} ranks of {_FLEET_MB} MB at that (extrapolated): {worker_s / 3600:.1f} hours"
        f" of workers, {worker_s / _FLEET_CORES / 60:.0f} min on {_FLEET_CORES}, then"
        f" {_FLEET * judged_ms / 1e3:.0f} s in the parent\n"
    )


def _faults_of(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.name}, {run.n_ranks:,} ranks: {run.verdict}, {run.n_failed} failed"
        for run in runs
        if run.verdict != f"straggler-bound rank {LATE_RANK}" or run.n_failed
    ]


def _written(size: Size, folder: Path) -> list[Path]:
    begun = time.perf_counter()
    shape = ["--ranks", str(size.n_ranks), "--kernels", str(size.kernels), "--kinds", str(size.kinds)]
    late = ["--late", str(LATE_RANK), str(LATE_US)]
    subprocess.run([sys.executable, "-m", "bench.simulated", *shape, *late, str(folder)], cwd=REPO_ROOT, check=True)
    paths = sorted(folder.iterdir())
    print(
        f"{size.n_ranks:,} ranks of {size.mb} MB written in {time.perf_counter() - begun:.0f} s,"
        f" {sum(path.stat().st_size for path in paths) / 1e6:,.0f} MB; {os.cpu_count()} cores",
        flush=True,
    )
    return paths


def _print(runs: Sequence[Run]) -> None:
    print(f"\n{'':28}{'ranks':>7}{'kept':>7}{'wall s':>9}{'ms/rank':>9}{'alone s':>9}{'parent MB':>11}  verdict")
    for run in runs:
        print(
            f"{run.name:28}{run.n_ranks:>7,}{run.n_kept:>7,}{run.wall_s:>9.1f}{run.rank_ms:>9.1f}"
            f"{run.judged_s:>9.1f}{run.peak_bytes / 1e6:>11.0f}  {run.verdict}"
        )


def _command(
    paths: Sequence[Path], *, workers: int = 2, cache: Path | None = None, is_cluster: bool = False, slow_s: float = 0.0
) -> list[str]:
    command = [sys.executable, "-m", _CHILD, "--workers", str(workers), "--slow-s", str(slow_s)]
    command += ["--cache", str(cache)] if cache is not None else []
    command += ["--cluster"] if is_cluster else []
    return [*command, str(paths[0].parent), str(len(paths))]


def _run(
    name: str,
    paths: Sequence[Path],
    *,
    workers: int = 2,
    cache: Path | None = None,
    is_cluster: bool = False,
    slow_s: float = 0.0,
) -> Run:
    command = _command(paths, workers=workers, cache=cache, is_cluster=is_cluster, slow_s=slow_s)
    done = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return _told(name, len(paths), done.stdout)


def _told(name: str, n_ranks: int, text: str) -> Run:
    line = next(line for line in reversed(text.splitlines()) if line.startswith("{"))
    return Run(name=name, n_ranks=n_ranks, **json.loads(line))


def _over_hosts(paths: Sequence[Path]) -> Run:
    """Through a cluster whose two workers are on other hosts than its scheduler: network namespaces of this machine."""
    name = "cluster over 3 hosts"
    if reason := why_not():
        raise SystemExit(f"{name}: no hosts can be made here: {reason}")
    with tempfile.TemporaryFile("w+", encoding="utf-8") as told, lab(hosts=3, slow="none") as hosts:
        address = hosts.plan.hosts[0].address
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", f"tcp://{address}:8786"]
        worker += ["--nthreads", "1", "--no-dashboard", "--no-nanny", "--death-timeout", "60"]
        parent = [*_command(paths)[:-2], "--scheduler", address, *_command(paths)[-2:]]
        hosts.run([parent, worker, worker], cwd=REPO_ROOT, output=told, timeout_s=300)
        told.seek(0)
        return _told(name, len(paths), told.read())


def _killed_and_resumed(paths: Sequence[Path], cache: Path, faults: list[str]) -> Run:
    """Kill a run in its middle (SIGKILL), then run it again; what it had finished must not be read again."""
    process = subprocess.Popen(
        _command(paths, cache=cache), cwd=REPO_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and _n_kept(cache) < len(paths) // 2:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(3)  # the workers end with their parent; one that has just finished a rank may still write it
    n_finished = _n_kept(cache)
    resumed = _run("killed and resumed", paths, cache=cache)
    if resumed.n_kept != n_finished:
        faults.append(f"{n_finished - resumed.n_kept} ranks were finished before the run was killed, and redone")
    return resumed


def _n_kept(cache: Path) -> int:
    return sum(1 for _ in cache.glob(f"*{SUFFIX}")) if cache.is_dir() else 0


if __name__ == "__main__":
    sys.exit(main())
