"""What a worker does for one source: give its outcomes, kept ones where there are, else made and kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from msgspec.structs import replace

from profkit.errors import ProfkitError, blamed
from profkit.ingest.discover import is_url
from profkit.ingest.numbers import rank_in_name
from profkit.ingest.read import second_beside
from profkit.model.documents.report import Failure
from profkit.ranks.reduce.bundle import leaf
from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.outcome import Outcome, failure_of, outcomes_of
from profkit.ranks.run.store import Key, content_digest, key_of, store_of


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """Where finished ranks are kept: in `folder`, among the user's caches if that is None.

    `secret` signs them, the user's own on the machine of the worker if it is empty.
    """

    folder: str | None = None
    secret: bytes = b""

    def __repr__(self) -> str:  # shown in logs of a cluster, where no secret belongs
        return f"Keeping(folder={self.folder!r})"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One source to analyse. `is_slim`: as a leaf, without the tables of its report, for a parent of hundreds."""

    source: str
    options: Options
    keeping: Keeping | None = None
    is_slim: bool = False


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job: outcomes, or why there are none. `is_kept`: they were there from an earlier run.

    Of a slim job the outcomes are a `leaf`, bytes that a worker merges with others (`reduce.bundle`).
    """

    source: str
    outcomes: tuple[Outcome, ...] = ()
    leaf: bytes = b""
    failure: Failure | None = None
    hint: str = ""
    is_kept: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it came to nothing."""
        return not self.outcomes and not self.leaf


def done(job: Job) -> Finished:
    """What becomes of a job; runs in a worker, and raises nothing but what ends the worker."""
    try:
        with blamed("analysing it", job.source):
            finished = _done(job)
    except ProfkitError as error:  # a rank that fails is told of in the report; the others go on
        return failed(job, error)
    if not job.is_slim or not finished.outcomes:
        return finished
    slim = tuple(replace(item, report=replace(item.report, sections=())) for item in finished.outcomes)
    return replace(finished, outcomes=(), leaf=leaf(slim))


def failed(job: Job, error: Exception) -> Finished:
    """A job that came to nothing."""
    hint = error.hint if isinstance(error, ProfkitError) else ""
    return Finished(source=job.source, failure=failure_of(job.source, error), hint=hint)


def _done(job: Job) -> Finished:
    store = None if job.keeping is None else store_of(job.keeping.folder, job.keeping.secret)
    key = None if store is None else _key(job)
    if store is None or key is None or job.options.tracks_room:  # rows to draw are too large to be kept
        return Finished(source=job.source, outcomes=outcomes_of(job.source, job.options))
    known = store.kept(job.source, key)
    if known is not None:
        return Finished(source=job.source, outcomes=known, is_kept=True)
    outcomes = outcomes_of(job.source, job.options)
    store.keep(job.source, key, outcomes)
    return Finished(source=job.source, outcomes=outcomes)


def _key(job: Job) -> Key | None:
    """The key under which a job's outcomes are kept, None where nothing tells the source from another."""
    content = _content(job.source)
    named = rank_in_name(job.source.rpartition("/")[2])
    return None if content is None else key_of(content, job.options, named_rank=named)


def _content(source: str) -> bytes | None:
    """A digest that is another if the source's content is another, None where nothing tells."""
    if is_url(source):
        from profkit.ingest.bytes.remote import identity

        told = identity(source)
        return None if told is None else hashlib.sha256(told).digest()
    try:
        content = content_digest(Path(source))
        beside = second_beside(source)
        return content if beside is None else hashlib.sha256(content + content_digest(beside)).digest()
    except OSError:  # the reader says what is wrong with it
        return None
