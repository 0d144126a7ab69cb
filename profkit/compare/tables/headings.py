"""What a column of a result table holds, by its heading: measure and unit, GPUs, batch, memory, or configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from profkit.errors import TraceFormatError, UsageError

_NS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9, "secs": 1e9, "second": 1e9, "seconds": 1e9}
_BYTES: Final = {
    "bytes": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
}  # fmt: skip
# "step_s" is a time, "steps_s" and "step_per_s" are rates.
_RATE: Final = re.compile(
    r"(?:(?P<kind>\w+)_)?(?P<work>(?:tok(?:en)?|sample|image|img|sequence|seq|example|item|iter|it|step)s?)"
    r"_(?:per_|(?<=s_)|(?<=tok_)|(?<=it_))(?:s|sec|secs|second)(?P<each>_per_(?:gpu|rank|device))?"
)
_THROUGHPUT: Final = re.compile(r"(?:(?P<kind>\w+)_)?throughput(?P<each>_per_(?:gpu|rank|device))?")
_PER_STEP: Final = re.compile(r"(?:(?P<kind>\w+)_)?(?P<unit>ns|us|ms|s|secs?|seconds?)_per_(?:step|iter|iteration)")
_TIME: Final = re.compile(
    r"(?P<kind>\w*?)(?P<what>step|iter|iteration|wall|time|duration|elapsed)(?P<rest>_\w+?)?"
    r"_(?P<unit>ns|us|ms|s|secs?|seconds?)"
)
_WORK: Final = {
    "work": "work", "tok": "tokens", "img": "images", "seq": "sequences", "it": "steps", "iter": "steps",
}  # fmt: skip
_BARE: Final = {"metric": True, "cost": False}  # as profkit bench names what a pattern without a name reads
# Of several measures the first kind wins: what was learned from, not padding; means, not medians, for totals add up.
_BEST_KINDS: Final = ("real", "useful", "global_useful", "nonpad", "steady_state", "global", "")
_POOR_KINDS: Final = ("padded", "p50", "p95", "p99", "median", "std", "sd", "min", "max", "skew", "spread", "first")
_ROLES: Final = {
    "gpus": r"(?:n_|num_)?(?:gpus?|ranks|devices|procs|processes|nproc|world)|world_?size|ws|dp(?:_size)?",
    "micro_batch": r"(?:per_(?:gpu|device|rank)_(?:train_)?|micro_?|local_)batch(?:_size)?|batch(?:_size)?|bs|mbs",
    "accumulation": r"(?:grad(?:ient)?_)?accum(?:ulation)?(?:_steps)?",
    "global_batch": r"(?:effective|global|total)_batch(?:_size)?|gbs",
    "work": r"(?:tokens|samples)_per_step",
    "block": r"block|round",
    "arm": r"arm|side|variant",
    "run": r"run|run_index|repeat|repetition|trial|seed|index|order|i|id",
}
_MEMORY: Final = re.compile(
    r"(?:\w+_)?(?:peak_|max_)?(?:v?ram|mem(?:ory)?)(?:_(?:peak|used|allocated|reserved))?_(\w+)"
)
_CAPACITY: Final = re.compile(r"(?:\w+_)?(?:capacity|total_mem(?:ory)?|mem(?:ory)?_(?:total|capacity))_(\w+)")


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """The measured column: `scale` brings its numbers to `unit`; `is_per_gpu` says that they are of one GPU."""

    column: str
    unit: str
    higher_is_better: bool
    scale: float = 1.0
    is_per_gpu: bool = False

    @property
    def words(self) -> str:
        """What is measured, for an error: `'step_ms' in ns/step, lower is better`."""
        unit = f" in {self.unit}" if self.unit else ", a number without a unit"
        return f"{self.column!r}{unit}, {'higher' if self.higher_is_better else 'lower'} is better"


@lru_cache(maxsize=4096)
def normal(heading: str) -> str:
    """A heading in lower case with single underscores: `Tokens / sec` is `tokens_sec`."""
    return re.sub(r"[^a-z0-9]+", "_", heading.strip().lower()).strip("_")


def metric_of(headings: Sequence[str], wanted: str | None, source: str) -> Metric:
    """The measured column: the one asked for, else the best known by its name; raises in one line."""
    if wanted is not None:
        if wanted not in headings:
            raise UsageError(f"{source} has no column {wanted!r}", hint=f"its columns: {', '.join(headings)}")
        known = _as_metric(wanted)
        return known[1] if known else Metric(column=wanted, unit=wanted, higher_is_better=True)
    found = sorted((known for known in map(_as_metric, headings) if known is not None), key=lambda known: known[0])
    if not found:
        raise TraceFormatError(
            f"{source} has no column that measures speed; its columns: {', '.join(headings) or 'none'}",
            hint="call one tokens_per_sec, samples_per_s, step_ms or wall_s, or choose one with --metric",
        )
    return found[0][1]


def _as_metric(heading: str) -> tuple[int, Metric] | None:
    """The metric a heading names and its rank (0 is best), None if it names none."""
    name = normal(heading)
    if name in _BARE:
        return 80, Metric(column=heading, unit="", higher_is_better=_BARE[name])
    rate = _RATE.fullmatch(name) or _THROUGHPUT.fullmatch(name)
    if rate is not None:
        parts = rate.groupdict()
        work = parts.get("work", "work").removesuffix("s")
        unit = f"{_WORK.get(work, work + 's')}/s"
        metric = Metric(column=heading, unit=unit, higher_is_better=True, is_per_gpu=parts["each"] is not None)
        return _rank(parts["kind"] or "", 0 if unit == "tokens/s" else 20), metric
    time = _PER_STEP.fullmatch(name) or _TIME.fullmatch(name)
    if time is None:
        return None
    is_step = "step" in name or "iter" in name
    kinds = "_".join(filter(None, (time["kind"], time.groupdict().get("rest")))).strip("_")
    metric = Metric(
        column=heading, unit="ns/step" if is_step else "ns", higher_is_better=False, scale=_NS[time["unit"]]
    )
    return _rank(kinds, 40 if is_step else 60), metric


def _rank(kind: str, base: int) -> int:
    words = kind.split("_")
    if any(word in _POOR_KINDS for word in words):
        return base + 100
    return base + (_BEST_KINDS.index(kind) if kind in _BEST_KINDS else len(_BEST_KINDS))


def is_measure(heading: str) -> bool:
    """Whether a heading names a speed or a time, and so no configuration."""
    return _as_metric(heading) is not None


def role_of(headings: Iterable[str], role: str) -> str | None:
    """The column of a role ("gpus", "micro_batch", "accumulation", "block", ...), None if there is none."""
    pattern = re.compile(_ROLES[role])
    return next((heading for heading in headings if pattern.fullmatch(normal(heading))), None)


def work_unit(headings: Iterable[str]) -> str:
    """What the column of a step's work counts: tokens or samples."""
    return normal(role_of(headings, "work") or "samples").partition("_")[0]


def has_role(heading: str) -> bool:
    """Whether a heading has one of the known roles."""
    return any(re.fullmatch(pattern, normal(heading)) for pattern in _ROLES.values())


def memory_of(headings: Iterable[str]) -> tuple[str, float] | None:
    """The column of peak device memory and its bytes per unit."""
    return _sized(headings, _MEMORY, other=_CAPACITY)


def capacity_of(headings: Iterable[str]) -> tuple[str, float] | None:
    """The column of the device's memory and its bytes per unit."""
    return _sized(headings, _CAPACITY)


def _sized(
    headings: Iterable[str], pattern: re.Pattern[str], other: re.Pattern[str] | None = None
) -> tuple[str, float] | None:
    for heading in headings:
        match = pattern.fullmatch(normal(heading))
        if match and match[1] in _BYTES and not (other and other.fullmatch(normal(heading))):
            return heading, _BYTES[match[1]]
    return None
