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
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measure import REPO_ROOT
from bench.simulated import N_BUCKETS
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
    steps: int = 12

    @property
    def n_collectives(self) -> int:
        """Of each rank."""
        return self.steps * N_BUCKETS


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

    @property
    def judged_ms(self) -> float:
        """Of the parent's time for all ranks together, a rank's part."""
        return self.judged_s / self.n_ranks * 1e3

    @property
    def worker_s(self) -> float:
        """What a rank takes of one worker of two."""
        return 2 * (self.wall_s - self.first_s - self.judged_s) / (self.n_ranks - 1)


def main() -> int:
    """Run all and print; the exit code is 1 where a run does not say what was simulated, or a bound is missed."""
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="profkit-ranks-", dir=options.out))
    many = Size(n_ranks=options.many, mb=2, kernels=240, kinds=64)
    large = Size(n_ranks=options.large, mb=20, kernels=2_400, kinds=4)
    faults: list[str] = []
    try:
        if options.only != "faults":
            faults += _cost(many, large, folder)
        if options.only != "cost":
            faults += _faults(many, large, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for fault in faults:
        print(f"WRONG: {fault}")
    return int(bool(faults))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ranks", description=__doc__)
    parser.add_argument("--many", type=int, default=4_096, help="ranks of 2 MB (4,096)")
    parser.add_argument("--large", type=int, default=512, help="ranks of 20 MB (512)")
    parser.add_argument("--only", choices=("cost", "faults"), help="what a rank costs, or what goes wrong meanwhile")
    parser.add_argument("--out", type=Path, help="where traces are written for the time of the run: a gigabyte")
    return parser.parse_args()


def _cost(many: Size, large: Size, folder: Path) -> list[str]:
    """What ranks cost with two workers, by their number, their collectives and their text; and the bill."""
    fewer = [replace(many, n_ranks=max(many.n_ranks // part, 8)) for part in (16, 4)]
    long = replace(many, n_ranks=max(many.n_ranks // 8, 8), kernels=many.kernels // 10, steps=10 * many.steps)
    few, some, most, again, dense, big = (
        _run("2 workers", _written(size, folder)) for size in (*fewer, many, fewer[0], long, large)
    )
    runs = [
        few,
        some,
        most,
        replace(again, name="again"),
        replace(dense, name=f"{long.n_collectives} collectives each"),
    ]
    runs.append(replace(big, name=f"{large.mb} MB each"))
    runs.append(_run("the same, 1 worker", _written(large, folder)[: max(large.n_ranks // 8, 8)], workers=1))
    _print(runs)
    few_ms = (few.rank_ms + again.rank_ms) / 2  # before and after: what else runs on a machine changes meanwhile
    growth = most.rank_ms / few_ms - 1
    kb = (most.peak_bytes - few.peak_bytes) / max(most.n_ranks - few.n_ranks, 1) / 1e3
    print(
        f"a rank of {many.mb} MB: {few_ms:.1f} ms among {few.n_ranks:,}, {most.rank_ms:.1f} ms among"
        f" {most.n_ranks:,} ({growth:+.0%}, allowed {MOST_GROWTH:+.0%}); the parent's peak is"
        f" {most.peak_bytes / 1e6:.0f} MB (allowed {MOST_PARENT_MB}), {kb:.0f} kB for each more rank"
    )
    _print_bill((many, few, most), (long, dense), (large, big))
    faults = _untold(runs)
    if most.peak_bytes > MOST_PARENT_MB * 1e6:
        faults.append(f"the parent of {most.n_ranks:,} ranks takes {most.peak_bytes / 1e6:.0f} MB")
    if growth > MOST_GROWTH:
        faults.append(f"a rank takes {growth:.0%} more time among {most.n_ranks:,}")
    return faults


def _print_bill(many: tuple[Size, Run, Run], dense: tuple[Size, Run], large: tuple[Size, Run]) -> None:
    """The slopes, and what 10,000 ranks of ten times as many steps as the large ones would take at these.

    Extrapolated: a worker's time from ranks of two sizes, the parent's time and memory from ranks with few and with
    many collectives.
    """
    size, few, most = many
    per_gb_s = (large[1].worker_s - most.worker_s) / (large[0].mb - size.mb) * 1e3
    fixed_s = most.worker_s - per_gb_s * size.mb / 1e3
    kb = (most.peak_bytes - few.peak_bytes) / max(most.n_ranks - few.n_ranks, 1) / 1e3
    base_kb = most.peak_bytes / 1e3 - kb * most.n_ranks
    dense_kb = (dense[1].peak_bytes / 1e3 - base_kb) / dense[1].n_ranks
    more = dense[0].n_collectives - size.n_collectives
    each_ms, each_kb = (dense[1].judged_ms - most.judged_ms) / more, (dense_kb - kb) / more
    print(
        f"a worker takes {fixed_s * 1e3:.0f} ms for a rank and {per_gb_s:.1f} s for a GB of text; the parent takes"
        f" {most.judged_ms:.1f} ms and {kb:.0f} kB for a rank of {size.n_collectives} collectives,"
        f" {each_ms * 1e3:.0f} us and {each_kb * 1e3:.0f} bytes for each collective more"
    )
    n_more = large[0].n_collectives * _FLEET_MB // large[0].mb - size.n_collectives
    worker_s = _FLEET * (fixed_s + _FLEET_MB / 1e3 * per_gb_s)
    parent_s = _FLEET * (most.judged_ms + n_more * each_ms) / 1e3
    parent_gb = (base_kb + _FLEET * (kb + n_more * each_kb)) / 1e6
    print(
        f"{_FLEET:,} ranks of {_FLEET_MB} MB and {n_more + size.n_collectives} collectives at that (extrapolated):"
        f" {worker_s / 3600:.1f} hours of a worker, {worker_s / _FLEET_CORES / 60:.0f} min on {_FLEET_CORES}, then"
        f" {parent_s:.0f} s and {parent_gb:.1f} GB of the parent\n"
    )


def _faults(many: Size, large: Size, folder: Path) -> list[str]:
    """What goes wrong meanwhile: a slow file, a killed run, a lost worker; and workers on other hosts."""
    few = _written(replace(many, n_ranks=max(many.n_ranks // 16, 8)), folder)
    runs = [_run("one file takes 10 s", few, slow_s=_SLOW_S), _over_hosts(few)]
    faults: list[str] = []
    for size in (many, large):
        paths, kept = _written(size, folder), folder / f"kept-{size.mb}"
        runs.append(_killed_and_resumed(paths, kept, faults))
        runs.append(_run("all kept", paths, cache=kept))
        runs.append(_run("cluster of 2, one killed", paths, is_cluster=True))
    _print(runs)
    return faults + _untold(runs)


def _untold(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.name}, {run.n_ranks:,} ranks: {run.verdict}, {run.n_failed} failed"
        for run in runs
        if run.verdict != f"straggler-bound rank {LATE_RANK}" or run.n_failed
    ]


def _written(size: Size, folder: Path) -> list[Path]:
    """The traces of a size, written where they are not there yet."""
    folder /= f"{size.n_ranks}-{size.kernels}-{size.steps}"
    if folder.is_dir():
        return sorted(folder.iterdir())
    begun = time.perf_counter()
    shape = ["--ranks", str(size.n_ranks), "--kernels", str(size.kernels), "--kinds", str(size.kinds)]
    shape += ["--steps", str(size.steps)]
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
