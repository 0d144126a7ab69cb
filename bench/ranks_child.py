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
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from profkit.api import triage_ranks
from profkit.ranks.run.jobs import Finished, Keeping

_PIECES = 20


def main() -> int:
    """Triage and print."""
    options = _options()
    sources = [str(path) for path in sorted(options.folder.iterdir())[: options.n_ranks]]
    keeping = Keeping(folder=str(options.cache)) if options.cache is not None else None
    ended: list[bool] = []
    ended_s: list[float] = []
    with ExitStack() as held:
        if options.slow_s:
            sources[1] = held.enter_context(_slow(Path(sources[1]), options.slow_s))
        executor, kill = held.enter_context(_executor(options))
        begun = time.perf_counter()

        def tell(finished: Finished) -> None:
            ended.append(finished.is_kept)
            ended_s.append(time.perf_counter() - begun)
            if len(ended) == len(sources) // 2:
                kill()

        report = triage_ranks(sources, executor=executor, n_workers=options.workers, keeping=keeping, tell=tell)
        wall_s = time.perf_counter() - begun
    told = {
        "wall_s": wall_s,
        "first_s": ended_s[0],
        "judged_s": wall_s - ended_s[-1],
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
    if not options.cluster and not options.scheduler:
        yield None, lambda: None
        return
    from distributed import Client, LocalCluster

    if options.scheduler:  # its workers come from elsewhere
        cluster = LocalCluster(
            n_workers=0, host=options.scheduler, scheduler_port=8786, dashboard_address=None, silence_logs=50
        )
        with cluster, Client(cluster) as client:
            client.wait_for_workers(options.workers, timeout=60)
            yield client.get_executor(pure=False), lambda: None
            client.shutdown()
        return
    cluster = LocalCluster(
        n_workers=options.workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    with cluster, Client(cluster) as client:
        pids = client.run(os.getpid)
        yield client.get_executor(pure=False), lambda: os.kill(next(iter(pids.values())), signal.SIGKILL)


@contextmanager
def _slow(path: Path, lasts_s: float) -> Iterator[str]:
    """Give the URL of a file from a server that takes so long to give it, a piece at a time, as a slow disk would."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def copyfile(self, source: Any, outputfile: Any) -> None:
            size = path.stat().st_size // _PIECES + 1
            while piece := source.read(size):
                time.sleep(lasts_s / _PIECES)
                outputfile.write(piece)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(path.parent))) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{path.name}"
        server.shutdown()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ranks_child", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("n_ranks", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--cluster", action="store_true", help="a LocalCluster, one worker of which dies in the middle")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="the address of a scheduler whose workers will come")
    parser.add_argument("--slow-s", type=float, default=0.0, help="how long the second rank's file takes to come")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
