"""`make bench-ranks`: many simulated ranks of 20 MB through 1 and 2 workers, killed and resumed, and through a cluster.

What is simulated stands in `bench.simulated`. Every run is a process of its own; its peak RSS is without its workers.
Prints the cost of a rank, and what 10,000 ranks would take at that.
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

LATE_RANK, LATE_US = 3, 12_000
_FLEET = 10_000
_CHILD = "bench.ranks_child"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One triage of ranks, in a process of its own."""

    name: str
    n_ranks: int
    wall_s: float
    peak_bytes: int
    n_kept: int
    n_failed: int
    verdict: str

    @property
    def n_read(self) -> int:
        """Ranks that this run read itself."""
        return self.n_ranks - self.n_kept


def main() -> int:
    """Run all and print; the exit code is 1 where a run says something else than was simulated, or redid a rank."""
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="profkit-ranks-", dir=options.out))
    try:
        sizes = sorted({max(options.ranks // 8, 8), max(options.ranks // 2, 8), options.ranks})
        return _measured(options.ranks, folder, sizes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ranks", description=__doc__)
    parser.add_argument("--ranks", type=int, default=512, help="ranks of the largest run (512)")
    parser.add_argument("--out", type=Path, help="where the traces are written for the time of the run (1.2 MB each)")
    return parser.parse_args()


def _measured(n_ranks: int, folder: Path, sizes: Sequence[int]) -> int:
    begun = time.perf_counter()
    written = ["--ranks", str(n_ranks), "--late", str(LATE_RANK), str(LATE_US), str(folder / "traces")]
    subprocess.run([sys.executable, "-m", "bench.simulated", *written], cwd=REPO_ROOT, check=True)
    paths = sorted((folder / "traces").iterdir())
    print(
        f"{n_ranks} ranks of 20 MB written in {time.perf_counter() - begun:.0f} s,"
        f" {sum(path.stat().st_size for path in paths) / 1e6:,.0f} MB; {os.cpu_count()} cores; rank {LATE_RANK} waits"
        f" {LATE_US / 1000:.0f} ms per step longer for its data\n"
    )
    runs = [_run(f"{n} workers" if n > 1 else "1 worker", paths, workers=n) for n in (1, 2)]
    runs += [_run(f"2 workers, {size} ranks", paths[:size], workers=2) for size in sizes[:-1]]
    killed, resumed, n_finished = _killed_and_resumed(paths, folder / "cache")
    runs.append(resumed)
    runs.append(_run("2 workers, all kept", paths, workers=2, cache=folder / "cache"))
    clustered = _run("cluster of 2, one killed", paths, workers=2, is_cluster=True)
    runs.append(clustered)
    _print(runs)
    n_redone = n_finished - resumed.n_kept
    print(f"\nkilled after {killed:.1f} s, {n_finished} ranks finished; resumed: {n_redone} of them redone (wanted: 0)")
    _print_cost(runs[0], runs[1], runs[1 + len(sizes) - 1])
    wrong = [run.name for run in runs if run.verdict != f"straggler-bound rank {LATE_RANK}" or run.n_failed]
    if wrong:
        print(f"wrong: {', '.join(wrong)}")
    return int(bool(wrong) or n_redone != 0)


def _print_cost(one: Run, two: Run, fewer: Run) -> None:
    """Print what a rank costs, by two workers' time and by what the parent's memory grows from half the ranks on.

    Below, buffers of bounded size are still filling, which do not grow with more ranks.
    """
    cost_s = two.wall_s / two.n_ranks
    per_rank = (two.peak_bytes - fewer.peak_bytes) / max(two.n_ranks - fewer.n_ranks, 1)
    parent_gb = (two.peak_bytes + per_rank * (_FLEET - two.n_ranks)) / 1e9
    print(f"2 workers over 1: {one.wall_s / two.wall_s:.2f} times as fast")
    print(f"a rank costs {2 * cost_s:.2f} worker seconds and {per_rank / 1e3:.0f} kB of the parent")
    print(
        f"{_FLEET:,} ranks at that (extrapolated): {_FLEET * cost_s / 60:.0f} min on 2 workers,"
        f" {_FLEET * 2 * cost_s / 64 / 60:.1f} min on 64, {parent_gb:.1f} GB of the parent"
    )


def _print(runs: Sequence[Run]) -> None:
    print(f"{'':26}{'ranks':>7}{'kept':>7}{'wall s':>9}{'ranks/s':>9}{'parent MB':>11}  verdict")
    for run in runs:
        rate = run.n_ranks / run.wall_s
        print(
            f"{run.name:26}{run.n_ranks:>7}{run.n_kept:>7}{run.wall_s:>9.1f}{rate:>9.1f}"
            f"{run.peak_bytes / 1e6:>11.0f}  {run.verdict}"
        )


def _command(paths: Sequence[Path], *, workers: int, cache: Path | None = None, is_cluster: bool = False) -> list[str]:
    command = [sys.executable, "-m", _CHILD, "--workers", str(workers)]
    command += ["--cache", str(cache)] if cache is not None else []
    command += ["--cluster"] if is_cluster else []
    return [*command, str(paths[0].parent), str(len(paths))]


def _run(name: str, paths: Sequence[Path], *, workers: int, cache: Path | None = None, is_cluster: bool = False) -> Run:
    command = _command(paths, workers=workers, cache=cache, is_cluster=is_cluster)
    done = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return Run(name=name, n_ranks=len(paths), **told)


def _killed_and_resumed(paths: Sequence[Path], cache: Path) -> tuple[float, Run, int]:
    """Kill a run in its middle (SIGKILL), then run it again; gives when it was killed, and ranks finished by then."""
    begun = time.perf_counter()
    command = _command(paths, workers=2, cache=cache)
    process = subprocess.Popen(command, cwd=REPO_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and _n_kept(cache) < len(paths) // 2:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed_s = time.perf_counter() - begun
    time.sleep(3)  # the workers end with their parent; one that has just finished a rank may still write it
    n_finished = _n_kept(cache)
    return killed_s, _run("killed and resumed", paths, workers=2, cache=cache), n_finished


def _n_kept(cache: Path) -> int:
    return sum(1 for _ in cache.glob(f"*{SUFFIX}")) if cache.is_dir() else 0


if __name__ == "__main__":
    sys.exit(main())
