"""Jobs through a `concurrent.futures.Executor`, a bounded number at a time; a worker that dies costs one rank a retry.

Only `submit` is asked of an executor, which is all that every one of them has: that of `distributed` raises on more.
What the parent holds of finished ranks is gathered here: few as they are, of many the bundles that workers merge.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from profkit.errors import ProfkitError, fault
from profkit.ranks.reduce.bundle import Bundle, bundle_of, opened
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.run.jobs import Finished, Job, done, failed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

_IN_FLIGHT_PER_WORKER: Final = 2
"""Jobs submitted for each worker: one it does, one it finds when it is done. Results wait nowhere else."""
FAN_IN: Final = 64
"""Leaves that a worker merges at once. Measured with 24 collectives a rank, whose numbers all differ: 6.6 kB for each
alone, 2.2 kB in bundles of 16, 1.9 kB of 64, 1.7 kB of 256 and of 1,024; the larger ones open no faster."""
MOST_BYTES: Final = 4 * 2**20
"""Leaves of long traces are merged sooner: it is what goes to a worker and waits here meanwhile."""


class WorkerDiedError(ProfkitError):
    """The process that read a trace died twice: killed for memory, mostly."""


class Here(Executor):
    """An executor that does each job in this process when it is submitted: for ranks too small to share out."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """The future of a call that has ended."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as a worker would: whoever asks for the result gets it
            future.set_exception(error)
        return future


@dataclass(slots=True)
class Pool:
    """Where jobs run. An executor that was handed over is never shut down; our own is replaced when it breaks."""

    n_workers: int
    executor: Executor | None = None
    _own: Executor | None = field(default=None, init=False)
    _line: Connection | None = field(default=None, init=False)
    """Nothing is sent on it: while our end is open, the workers live."""

    def submit(self, job: Job) -> Future[Finished]:
        """The future of a job; of a job that could not be submitted, one that has failed."""
        return self._submitted(done, job)

    def merge(self, leaves: Sequence[tuple[int, bytes]]) -> Future[Bundle]:
        """The future of a bundle of leaves, as `submit` gives it."""
        return self._submitted(bundle_of, leaves)

    def _submitted(self, act: Callable[[Any], T], what: Any) -> Future[T]:
        try:
            return self._present().submit(act, what)
        except (BrokenExecutor, RuntimeError) as error:
            lost: Future[T] = Future()
            lost.set_exception(error if isinstance(error, BrokenExecutor) else BrokenExecutor(str(error)))
            return lost

    def _present(self) -> Executor:
        if self.executor is not None:
            return self.executor
        if self._own is None:
            self._own, self._line = _processes(self.n_workers)
        return self._own

    def renew(self) -> bool:
        """Drop a pool of our own that broke; False where the executor is not ours to replace."""
        if self.executor is not None:
            return False
        self.close()
        return True

    def close(self) -> None:
        """End our own processes, also those that are at work."""
        if self._own is not None and self._line is not None:
            self._line.close()
            self._own.shutdown(wait=True, cancel_futures=True)  # short: the workers end with the line
        self._own = self._line = None


@contextmanager
def pool_of(n_workers: int, executor: Executor | None = None) -> Iterator[Pool]:
    """A pool that is closed at the end; `executor` is used as it is where there is one."""
    pool = Pool(n_workers=n_workers, executor=executor)
    try:
        yield pool
    finally:
        pool.close()


def _processes(n_workers: int) -> tuple[Executor, Connection]:
    """Worker processes that begin fresh (spawn): no lock or thread of this process is copied half-way."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    return ProcessPoolExecutor(n_workers, mp_context=context, initializer=_begin, initargs=(theirs,)), ours


def _begin(line: Connection) -> None:
    """Make a worker leave Ctrl-C to the parent and end with it: a killed parent would leave it waiting for ever."""
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def follow() -> None:
        with suppress(EOFError, OSError):
            line.recv_bytes()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def finished(jobs: Iterable[Job], pool: Pool) -> Iterator[Finished]:
    """What becomes of each job, as they end.

    When a worker dies, nobody can say which of the jobs under way killed it: each of them is then done once more,
    alone, and the one that kills a worker again is given up.
    """
    waiting, alone = deque(jobs), deque[Job]()
    pending: dict[Future[Finished], Job] = {}
    while waiting or alone or pending:
        is_alone = bool(alone) and not pending
        if is_alone:
            job = alone.popleft()
            pending[pool.submit(job)] = job
        while waiting and not alone and not is_alone and len(pending) < _IN_FLIGHT_PER_WORKER * pool.n_workers:
            job = waiting.popleft()
            pending[pool.submit(job)] = job
        ended, _ = wait(pending, return_when=FIRST_COMPLETED)
        is_broken = False
        for future in [future for future in pending if future in ended]:  # as they were sent: a set has no order
            job = pending.pop(future)
            error = future.exception()
            is_broken |= isinstance(error, BrokenExecutor)
            if error is None:
                yield future.result()
            elif not _is_death(error):
                yield failed(job, fault(error, "analysing it", job.source))
            elif is_alone:
                yield failed(job, _given_up(job))
            else:
                alone.append(job)
        if is_broken and not pending and not pool.renew():
            yield from _all_lost([*alone, *waiting])
            return


def _is_death(error: BaseException) -> bool:
    """Whether a worker ended, rather than its job failed; distributed's is known by name, it need not be installed."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"


def _given_up(job: Job) -> WorkerDiedError:
    return WorkerDiedError(
        f"{job.source}: the process that read it died twice",
        hint="usually out of memory: check dmesg; use -j 1, or read this file alone",
    )


def _all_lost(jobs: Iterable[Job]) -> Iterator[Finished]:
    for job in jobs:
        yield failed(job, WorkerDiedError(f"{job.source}: not read: the given executor is broken"))


class Gathering:
    """Finished ranks on their way to the report.

    One level of merging: in the end all bundles are opened, and one that was merged twice opens no faster. A merge
    whose worker dies is done here: nothing is read again for it.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._whole: list[tuple[int, Outcome]] = []
        self._leaves: list[tuple[int, bytes]] = []
        self._n_bytes = 0
        self._merging: list[tuple[Future[Bundle], list[tuple[int, bytes]]]] = []
        self._bundles: list[Bundle] = []

    def add(self, place: int, finished: Finished) -> None:
        """Take what became of the source with this number."""
        self._whole += [(place, outcome) for outcome in finished.outcomes]
        if not finished.leaf:
            return
        self._leaves.append((place, finished.leaf))
        self._n_bytes += len(finished.leaf)
        if len(self._leaves) >= FAN_IN or self._n_bytes >= MOST_BYTES:
            leaves, self._leaves, self._n_bytes = self._leaves, [], 0
            self._merging.append((self._pool.merge(leaves), leaves))
            self._take(only_done=True)

    def end(self) -> None:
        """Wait for what is merged; to be called while there are workers."""
        self._take(only_done=False)
        if self._leaves:
            self._bundles.append(bundle_of(self._leaves))
            self._leaves = []

    def outcomes(self) -> list[Outcome]:
        """All outcomes in the order of their sources, whichever ended first; afterwards nothing is held here."""
        placed, self._whole = self._whole, []
        while self._bundles:
            placed += opened(self._bundles.pop())
        placed.sort(key=lambda one: one[0])
        return [outcome for _, outcome in placed]

    def _take(self, *, only_done: bool) -> None:
        kept = []
        for future, leaves in self._merging:
            if only_done and not future.done():
                kept.append((future, leaves))
            else:
                is_lost = future.cancelled() or future.exception() is not None
                self._bundles.append(bundle_of(leaves) if is_lost else future.result())
        self._merging = kept
