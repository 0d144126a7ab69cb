"""What the renderers share of a fleet: the table of ranks, and the lines around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from profkit.render.words.triage import gain_sentence, source_names, step_sentence
from profkit.shell import clean
from profkit.units import format_bytes, format_ceiling, format_ns, format_numbers

if TYPE_CHECKING:
    from profkit.model.documents.fleet import Fleet, GroupRow, LeftOut, RankRow
    from profkit.model.documents.report import Failure, Report

_MAX_LEFT_OUT: Final = 4
_MIN_SHOWN: Final = 0.005  # of the step; chosen: below, the column is not worth its width
_EXTRA: Final = {"copies": "copy_ns", "device": "device_ns"}
_UNITS: Final = (("s", 10**9), ("ms", 10**6), ("us", 10**3))


def unit_of(rows: Sequence[RankRow]) -> tuple[str, int]:
    """The unit in which the rows' steps have one to four digits, and its nanoseconds."""
    longest = max((row.step_ns for row in rows), default=0)
    return next(((name, scale) for name, scale in _UNITS if longest >= 10 * scale), _UNITS[-1])


def table_title(report: Report) -> str:
    """What the table of ranks shows, and in which unit."""
    fleet = report.fleet
    if fleet is None:
        return ""
    unit, _ = unit_of(fleet.rows)
    per = "per step" if report.verdict.step_ns is not None else "of the window"
    here = f"{len(fleet.ranks)} ranks" if not fleet.missing else f"{len(fleet.ranks)} of {fleet.world_size} ranks"
    if fleet.missing:  # who is not here may come last: only the wait for those that are here is known to be one
        return f"{here}, {unit} {per}; transfer includes waiting for missing ranks"
    return f"{here}, {unit} {per}; exposed comm = comm wait + transfer"


def headers_of(fleet: Fleet) -> tuple[str, ...]:
    """The columns of `cells_of`."""
    return ("rank", "data", "compute", "host", *_extra(fleet), "comm wait", "transfer", "last in", "cause")


def cells_of(fleet: Fleet, *, is_full: bool = False) -> list[tuple[str, ...]]:
    """The rows of the table of ranks; one for every rank if `is_full`."""
    _, scale = unit_of(fleet.rows)
    extra = [_EXTRA[header] for header in _extra(fleet)]
    return [_cells(row, scale, extra) for row in (fleet.rows if is_full else fleet.shown)]


def _extra(fleet: Fleet) -> list[str]:
    """The columns that are shown only where a rank has some of it."""
    return [
        header
        for header, field in _EXTRA.items()
        if any(getattr(row, field) >= _MIN_SHOWN * row.step_ns and getattr(row, field) > 0 for row in fleet.shown)
    ]


def _cells(row: RankRow, scale: int, extra: Sequence[str]) -> tuple[str, ...]:
    def size(part_ns: int | None) -> str:
        return "-" if part_ns is None else f"{part_ns / scale:,.1f}"

    return (
        ranks_cell(row.ranks),
        size(row.data_ns),
        size(row.compute_ns),
        size(row.host_ns),
        *(size(getattr(row, field)) for field in extra),
        size(row.wait_ns),
        size(row.transfer_ns),
        f"{row.n_last:,} of {row.n_instances:,}" if row.n_instances else "-",
        clean(row.cause),
    )


def ranks_cell(ranks: Sequence[int]) -> str:
    """A row's ranks: their numbers, or how many where the numbers are long."""
    text = format_numbers(ranks)
    return text if len(text) <= 9 else f"{len(ranks)} others"


def prediction_sentence(report: Report) -> str:
    """The step that the replay predicts with the late ranks mended; "" where there is none."""
    found = report.fleet.prediction if report.fleet is not None else None
    if found is None or found.gain_ns == 0:
        return ""
    who = (
        f"rank {found.ranks[0]} as fast as its"
        if len(found.ranks) == 1
        else f"ranks {format_numbers(found.ranks)} as fast as their"
    )
    step_ns = report.verdict.step_ns or found.replayed_ns
    bounds = (found.predicted_ns, found.predicted_most_ns)
    # of the step that is printed, less what the replay loses: the replay's own step is another by its error
    least, most = (step_ns - found.replayed_ns + bound for bound in bounds)
    between = format_ns(least) if format_ns(least) == format_ns(most) else f"{format_ns(least)} to {format_ns(most)}"
    known, faster = report.verdict.speedup_ceiling, format_ceiling(step_ns / least) if least > 0 else ""
    said = "" if not faster or (known is not None and format_ceiling(known) == faster) else f"at best {faster} faster, "
    error = format_ns(found.error_fraction * step_ns)
    return f"With {who} peers: {between} by replay ({said}error {error})"


def step_facts(report: Report) -> list[str]:
    """The step, what a fix could give, and what the replay predicts."""
    said = (step_sentence(report), gain_sentence(report.verdict), prediction_sentence(report))
    return [sentence for sentence in said if sentence]


def facts_of(fleet: Fleet, *, is_full: bool = False) -> Iterable[tuple[str, str]]:
    """Label and text of what belongs under the table: clocks, groups, what follows from the verdict."""
    is_aligned = any(clock.is_fitted for clock in fleet.clocks)
    if fleet.clock_note and (is_full or not is_aligned):
        yield "clocks", fleet.clock_note
    for group in fleet.groups if is_full else ():
        note = f"; {clean(group.note)}" if group.note else ""
        yield "matched", _group_line(group) + note
    if fleet.prediction_note:
        yield "", clean(fleet.prediction_note)
    for said in fleet.explained if is_full else ():
        yield "effects", clean(said)


def _group_line(group: GroupRow) -> str:
    name = f"group {clean(group.name)}" if group.name else "all ranks"
    bus = f", bus {format_bytes(group.bus_bytes_per_s)}/s" if group.bus_bytes_per_s is not None else ""
    n_ranks = len(group.ranks)
    missing = " or waiting for missing ranks" if n_ranks < group.size else ""
    return (
        f"{group.n_instances:,} collective{'s' if group.n_instances != 1 else ''} of {name}"
        f" ({n_ranks} of {group.size or n_ranks}), matched by {group.method}:"
        f" {format_ns(group.wait_ns)} of waiting in total, {format_ns(group.transfer_ns)} of transfer{missing}{bus}"
    )


def set_apart(report: Report) -> dict[str, list[LeftOut]]:
    """The traces that are not of the job shown: "not joined" where one is judged alone, "left out" where not."""
    judged = {rank.source for rank in report.ranks}
    apart: dict[str, list[LeftOut]] = {}
    for item in report.fleet.left_out if report.fleet is not None else ():
        apart.setdefault("not joined" if item.source in judged else "left out", []).append(item)
    return apart


def left_out_lines(left_out: Sequence[LeftOut], *, is_full: bool = False) -> list[str]:
    """One line for each trace that takes no part; where many share a reason, one for all of them."""
    by_reason: dict[str, list[str]] = {}
    for item, name in zip(left_out, source_names(item.source for item in left_out), strict=True):
        by_reason.setdefault(item.reason, []).append(name)
    lines = []
    for reason, names in by_reason.items():
        if is_full or len(names) <= _MAX_LEFT_OUT:
            lines += [f"{name}: {clean(reason)}" for name in names]
        else:
            lines.append(f"{names[0]}, {names[1]} and {len(names) - 2} more: {clean(reason)}")
    return lines


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """Each source that could not be read, with why."""
    names = source_names(failure.source for failure in failures)
    return [
        clean(failure.message) if name in failure.message else f"{name}: {clean(failure.message)}"
        for failure, name in zip(failures, names, strict=True)
    ]


TIMES: Final = (
    "step_ns data_ns compute_ns host_ns copy_ns device_ns comm_wait_ns=wait_ns comm_transfer_ns=transfer_ns n_last"
    " n_instances"
)
"""The times (ns per step) and counts of a rank, by their keys in the JSON."""
