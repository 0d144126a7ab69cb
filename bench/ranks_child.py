"""One measured run of `bench.ranks`: a folder of ranks triaged, its cost as a line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from profkit.api import triage_ranks
from profkit.ranks.run.jobs import Finished, Keeping


def main() -> int:
    """Triage and print."""
    options = _options()
    sources = [str(path) for path in sorted(options.folder.iterdir())[: options.n_ranks]]
    keeping = Keeping(folder=str(options.cache)) if options.cache is not None else None
    ended: list[bool] = []
    with _executor(options) as (executor, kill):
        begun = time.perf_counter()

        def tell(finished: Finished) -> None:
            ended.append(finished.is_kept)
            if len(ended) == len(sources) // 2:
                kill()

        report = triage_ranks(sources, executor=executor, n_workers=options.workers, keeping=keeping, tell=tell)
        wall_s = time.perf_counter() - begun
    told = {
        "wall_s": wall_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "n_kept": sum(ended),
        "n_failed": len(report.failures),
        "verdict": f"{report.verdict.bottleneck.value} rank {report.verdict.rank}",
    }
    print(json.dumps(told))
    return 0


@contextmanager
def _executor(options: argparse.Namespace) -> Iterator[tuple[Executor | None, Any]]:
    """Give the executor (None: processes of profkit's own) and what kills one of its workers."""
    if not options.cluster:
        yield None, lambda: None
        return
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=options.workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    with cluster, Client(cluster) as client:
        pids = client.run(os.getpid)
        yield client.get_executor(pure=False), lambda: os.kill(next(iter(pids.values())), signal.SIGKILL)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ranks_child", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("n_ranks", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--cluster", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
