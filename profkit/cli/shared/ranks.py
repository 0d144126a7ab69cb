"""How `profkit triage` reads many ranks: in which processes, what it keeps of them, what it tells meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from profkit.cli.shared.progress import StatusLine
from profkit.cli.shared.say import say
from profkit.errors import MissingCapabilityError, UsageError
from profkit.shell import line_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from profkit.model.documents.report import Report
    from profkit.ranks.reduce.options import Options
    from profkit.ranks.run.jobs import Finished, Keeping

WORKERS_FROM_BYTES: Final = 100 * 10**6
"""Text in all sources from which worker processes pay. Measured on two cores with ranks of 20 MB: four take as long in
two processes as in this one (1.5 s against 1.3), eight 2.3 s against 3."""
_EXPANSION: Final = 14  # of gzip on real traces: 10 to 16


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of reading many ranks. `n_workers` 0 chooses."""

    n_workers: int = 0
    cache: Path | None = None
    is_cached: bool = True
    is_strict: bool = False
    dask: str | None = None


def report_on(sources: list[str], options: Options, plan: Plan) -> Report:
    """The report on several sources."""
    from profkit.api import triage_ranks
    from profkit.ingest.discover import is_stream, is_url

    if plan.dask is not None:  # its workers have other working folders
        sources = [source if is_url(source) else str(Path(source).absolute()) for source in sources]
    telling = _Telling(n_sources=len(sources), is_strict=plan.is_strict)
    is_small = plan.dask is None and plan.n_workers == 0 and _total_bytes(sources) < WORKERS_FROM_BYTES
    is_small |= any(map(is_stream, sources))
    keeping = _keeping(sources, plan, is_small=is_small)
    try:
        with _executor(plan, is_small=is_small) as (executor, n_workers):
            return triage_ranks(
                sources,
                options,
                executor=executor,
                n_workers=min(n_workers, len(sources)),
                keeping=keeping,
                tell=telling,
            )
    except KeyboardInterrupt:
        telling.clear()
        if keeping is not None and telling.n_done:
            say(f"{telling.n_done} of {len(sources)} sources are kept; run the command again to continue")
        raise
    finally:
        telling.clear()


def _total_bytes(sources: list[str]) -> int:
    """How much text the sources hold, about; of a URL nothing is known before it is fetched."""
    files = [Path(source) for source in sources if os.path.isfile(source)]  # noqa: PTH113 - no error for a long name
    return sum(file.stat().st_size * (_EXPANSION if file.suffix in (".gz", ".zst") else 1) for file in files)


def _keeping(sources: list[str], plan: Plan, *, is_small: bool) -> Keeping | None:
    """Where finished ranks are kept; nowhere for what is read in a second, unless a folder is named."""
    from profkit.ranks.run.jobs import Keeping
    from profkit.ranks.run.store import users_folder
    from profkit.signing import FINISHED_RANKS, secret_for

    if not plan.is_cached or (is_small and plan.cache is None):
        return None
    try:
        secret = secret_for(FINISHED_RANKS)  # this user's: a worker of a cluster may be another
        folder = users_folder() if plan.cache is None else plan.cache.absolute()
        folder.mkdir(mode=0o700 if plan.cache is None else 0o777, parents=True, exist_ok=True)
        return Keeping(folder=str(folder), secret=secret)
    except OSError as error:
        say(f"nothing is kept: {error.filename}: {error.strerror}")
        return None


@contextmanager
def _executor(plan: Plan, *, is_small: bool) -> Iterator[tuple[Executor | None, int]]:
    """Where jobs run and how many at a time; None for processes of our own."""
    if plan.dask is not None and not is_small:
        with _cluster(plan.dask) as (executor, n_workers):
            yield executor, n_workers
    elif is_small:
        from profkit.ranks.run.workers import Here

        yield Here(), 1
    else:
        yield None, plan.n_workers or n_cores()


def n_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """The executor of a `distributed` cluster and its threads; the cluster runs on when the client has gone."""
    try:
        from distributed import Client
    except ImportError:
        raise MissingCapabilityError("--dask needs distributed", hint="pip install 'profkit[cluster]'") from None
    try:
        client: Any = Client(address, timeout=5)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"no cluster answers at {address}: {reason}", hint="give the scheduler's address, as tcp://host:8786"
        ) from None
    with client:
        n_threads = sum(client.nthreads().values())
        if n_threads == 0:
            raise UsageError(
                f"the cluster at {address} has no workers", hint=f"start some: {line_of('dask worker', address).text}"
            )
        yield client.get_executor(pure=False), n_threads


class _Telling(msgspec.Struct):
    """Hears of each rank that ends: shows progress on a terminal's stderr, and ends a strict run at a failure."""

    n_sources: int
    is_strict: bool
    n_done: int = 0
    n_kept: int = 0
    n_failed: int = 0
    _line: StatusLine = msgspec.field(default_factory=lambda: StatusLine(is_patient=True))

    def __call__(self, finished: Finished) -> None:
        from profkit.api import error_of

        if finished.failure is not None and self.is_strict:
            raise error_of(finished)
        self.n_done += 1
        self.n_kept += finished.is_kept
        self.n_failed += finished.failure is not None
        self._line.show(self.line(self._line.elapsed_s))

    def line(self, elapsed_s: float) -> str:
        """The state in one line; ranks that were kept tell nothing of how fast the others are read."""
        n_read = self.n_done - self.n_kept
        parts = [f"{self.n_done:,} of {self.n_sources:,} ranks"]
        parts += [f"{self.n_kept:,} kept from before"] if self.n_kept else []
        parts += [f"{self.n_failed:,} failed"] if self.n_failed else []
        if n_read:
            left_s = (self.n_sources - self.n_done) * elapsed_s / n_read
            parts += [f"{n_read / elapsed_s:.1f} a second", f"{left_s:,.0f} s left"]
        return ", ".join(parts)

    def clear(self) -> None:
        """Take the line away again."""
        self._line.clear()
