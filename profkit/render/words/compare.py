"""What the renderers of a comparison share: its words, its rows, its signs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from profkit.findings.comparison import EXPLAINED, WORK_CHANGED
from profkit.model.documents.comparison import (
    Account,
    Answer,
    Bar,
    Comparison,
    FindingChange,
    Judgement,
    Presence,
    SideReport,
    WorkChange,
)
from profkit.model.finding import Evidence, Finding
from profkit.render.words import triage as text
from profkit.shell import clean
from profkit.units import format_bytes, format_change, format_count, format_fraction, format_ns, format_signed_ns

_MAX_NAMES: Final = 3
ANSWER_TONES: Final = {
    Answer.IMPROVED: "good",
    Answer.EQUIVALENT: "good",
    Answer.REGRESSED: "bad",
    Answer.INCONCLUSIVE: "open",
}
WATERFALL_HEADERS = ("where the time went", "baseline", "candidate", "change")
WORK_HEADERS = ("change", "by count", "by duration", "calls", "baseline", "candidate")
"""Columns of `work_rows` after the name; a narrow terminal shows the first four."""


def answer_name(comparison: Comparison) -> str:
    """The answer's word: `IMPROVED`; `OTHER WORK` where the sides do different work and are compared by its unit."""
    if comparison.judgement.is_comparable:
        return comparison.judgement.answer.upper()
    return "OTHER WORK" if any(one.id == WORK_CHANGED.id for one in comparison.readings) else "NOT COMPARABLE"


def tone(comparison: Comparison) -> str:
    """good, open or bad."""
    judged = comparison.judgement
    return ANSWER_TONES[judged.answer] if judged.is_comparable else "open"


def answer_sentence(comparison: Comparison) -> str:
    """What was measured and how sure it is."""
    judged = comparison.judgement
    if not judged.is_comparable:
        return clean(judged.sentence)
    name = next((name for name, each in comparison.configurations if each is judged), "")
    worst = f", {name}, the worst of {len(comparison.configurations)}" if name else ""
    return clean(f"{judged.metric}{worst}: {judged.sentence}")


def is_one_run(comparison: Comparison) -> bool:
    """Whether a side has a single run, so that only what happened can be said."""
    return min(comparison.baseline.n_runs, comparison.candidate.n_runs) == 1


def per(comparison: Comparison) -> str:
    """What times are counted by; the judged step may be an unprofiled one, these never are."""
    return "per profiled step" if comparison.baseline.n_steps else "in the window"


def captures_title(comparison: Comparison) -> str:
    """What the accounts are of: these captures; whether the next would show the same is the answer's matter."""
    n_runs = comparison.baseline.n_runs + comparison.candidate.n_runs
    of = "these two captures" if n_runs == 2 else f"these {format_count(n_runs)} captures"
    once = " (one run each)" if is_one_run(comparison) else ""
    return f"what happened in {of}, {per(comparison)}{once}"


def next_command(comparison: Comparison) -> str:
    """The command that settles what single runs leave open; "" where the runs were repeated, or cannot be compared."""
    judged = comparison.judgement
    is_open = judged.answer is Answer.INCONCLUSIVE and judged.is_comparable and is_one_run(comparison)
    return "profkit bench -n 8 -- COMMAND_A --vs COMMAND_B" if is_open and not comparison.configurations else ""


CONFIGURATION_HEADERS = ("configuration", "answer", "change", "95 % interval", "n")


def configuration_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Each configuration of a table with its own answer; none where there is only one."""
    rows: list[tuple[str, ...]] = []
    for name, judged in comparison.configurations:
        n = str(judged.n[0]) if judged.n[0] == judged.n[1] else f"{judged.n[0]}, {judged.n[1]}"
        rows.append((clean(name), judged.answer, format_change(judged.change), _interval(judged), n))
    return rows


def judged_cells(judged: Judgement) -> tuple[str, str, str, str, str]:
    """A judged value: its answer, change, interval, number of runs, and which changes so many can show."""
    answer = judged.answer if judged.is_comparable else "not comparable"
    change = format_change(judged.change) if judged.is_comparable else "-"
    detectable = judged.minimum_detectable_effect
    sees = "-" if detectable is None else f"{format_fraction(detectable)} or more"
    return answer, change, _interval(judged), f"{judged.n[0]} and {judged.n[1]} {judged.unit_of_replication}s", sees


def _interval(judged: Judgement) -> str:
    ends = judged.change_interval
    return "-" if ends is None else " to ".join(map(format_change, ends))


def waterfall_rows(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """The parts that either side spends time in, and their sum."""
    waterfall = comparison.waterfall
    if waterfall is None:
        return []
    labels = text.part_labels(is_cpu=comparison.baseline.is_cpu)
    rows = [
        (labels[bar.name], format_ns(bar.baseline_ns), format_ns(bar.candidate_ns), format_signed_ns(bar.delta_ns))
        for bar in waterfall.bars
        if bar.baseline_ns or bar.candidate_ns
    ]
    whole = "step" if comparison.baseline.n_steps else "window"
    times = format_ns(waterfall.baseline_ns), format_ns(waterfall.candidate_ns)
    return [*rows, (whole, *times, format_signed_ns(waterfall.delta_ns))]


def side_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """What each side is and did, one fact a row; facts that neither side has are left out."""
    sides = comparison.baseline, comparison.candidate
    facts = (
        ("verdict", [_verdict(side) for side in sides]),
        ("runs", [_runs(side) for side in sides]),
        ("compute busy", [_share(side, "compute") for side in sides]),
        ("comm busy", [_share(side, "comm") for side in sides]),
        ("comm hidden", [_fraction(side.comm_hidden_fraction) for side in sides]),
        ("copies busy", [_share(side, "copy") for side in sides]),
        ("rest" if comparison.baseline.is_cpu else "idle", [_share(side, "idle") for side in sides]),
        ("peak memory", [_bytes(side.peak_memory_bytes) for side in sides]),
    )
    return [(name, *(value or "-" for value in values)) for name, values in facts if any(values)]  # type: ignore[misc]


def _verdict(side: SideReport) -> str:
    return side.bottleneck if side.late_rank is None else f"{side.bottleneck}: rank {side.late_rank}"


def _runs(side: SideReport) -> str:
    runs, traces, steps = (
        f"{format_count(n)} {what}" + "s" * (n != 1)
        for n, what in ((side.n_runs, "run"), (side.n_traces, "trace"), (side.n_steps, "step"))
    )
    if side.n_traces > side.n_runs:  # ranks record the same steps: their sum is of traces, not of the run
        return f"{runs}: {steps} in {traces}" if side.n_steps else f"{runs}, {traces}"
    return f"{runs}, {steps}" if side.n_steps else runs


def _share(side: SideReport, name: str) -> str:
    value = side.occupancy.get(name, 0.0)
    return format_fraction(value) if value else ""


def _fraction(value: float | None) -> str:
    return "" if value is None else format_fraction(value)


def _bytes(value: int | None) -> str:
    return "" if value is None else format_bytes(value)


def accounts(comparison: Comparison, *, is_full: bool = False) -> list[tuple[str, Account]]:
    """The accounts of work, each with what it is of: those in which something changed, or all."""
    kernels = "operators" if comparison.baseline.is_cpu else "kernels"
    named = ((kernels, comparison.compute), ("collectives", comparison.comm))
    return [(name, one) for name, one in named if one and (is_full or any(row.delta_ns for row in one.rows))]


def work_rows(account: Account, n_rows: int) -> list[tuple[str, ...]]:
    """The works with the largest changes, all others, what ran side by side, and the sum: busy time's change."""
    shown = [row for row in account.rows[:n_rows] if row.delta_ns]
    rows = [_work_row(work_name(row), row, _calls(row)) for row in shown]
    others = [row for row in (*account.rows, account.rest) if row not in shown]
    n_others = len(account.rows) - len(shown) + account.n_rest
    if n_others:
        counts = [sum(getattr(row, name) for row in others) for name in ("by_count_ns", "by_duration_ns")]
        times = [sum(getattr(row, name) for row in others) for name in ("baseline_ns", "candidate_ns")]
        changes = map(format_signed_ns, (sum(counts), *counts))
        rows.append((f"{n_others} other{'s' * (n_others != 1)}", *changes, "", *map(format_ns, times)))
    aside = account.side_by_side
    if aside.baseline_ns or aside.candidate_ns:
        rows.append(_sum_row("overlap correction", aside))
    return [*rows, _sum_row("busy", account)]


def _work_row(name: str, row: WorkChange, calls: str) -> tuple[str, ...]:
    changes = map(format_signed_ns, (row.delta_ns, row.by_count_ns, row.by_duration_ns))
    return name, *changes, calls, *_times(row)


def _sum_row(name: str, change: Account | Bar) -> tuple[str, ...]:
    return name, format_signed_ns(change.delta_ns), "", "", "", *_times(change)


def _times(change: Account | Bar | WorkChange) -> tuple[str, str]:
    return format_ns(change.baseline_ns), format_ns(change.candidate_ns)


def _calls(row: WorkChange) -> str:
    counts = [format_count(round(count, 1)) for count in (row.baseline_count, row.candidate_count)]
    return counts[0] if counts[0] == counts[1] else f"{counts[0]}->{counts[1]}"


def work_name(row: WorkChange) -> str:
    """What a row is: `new: x`, `gone: x`, `x -> y` for what took another's place."""
    name = text.name_cell(row.name)
    if row.presence is Presence.REPLACED:
        other = text.name_cell(row.replaced_by)
        return f"{name} (other variants)" if other == name else f"{name} -> {other}"
    return {Presence.APPEARED: "new: ", Presence.VANISHED: "gone: "}.get(row.presence, "") + name


def finding_sentences(changes: Iterable[FindingChange]) -> list[str]:
    """The findings that appeared, vanished or stayed, with their shares of the window."""
    words = {Presence.APPEARED: "appeared", Presence.VANISHED: "gone"}
    found: dict[str, list[str]] = {}
    for item in changes:
        shares = [
            format_fraction(share) for share in (item.baseline_fraction, item.candidate_fraction) if share is not None
        ]
        found.setdefault(words.get(item.presence, "on both"), []).append(f"{clean(item.id)} ({' -> '.join(shares)})")
    return [f"{where}: {', '.join(items)}" for where, items in found.items()]


def reading_line(reading: Finding) -> str:
    """What was read, and what of the step's change it explains: `waiting for data falls (-494 ms of -489 ms)`."""
    explained = next((item for item in reading.evidence if item.metric == EXPLAINED), None)
    return clean(
        reading.title if explained is None else f"{reading.title} ({explained.statement.removeprefix('explains ')})"
    )


def reasons(reading: Finding) -> list[Evidence]:
    """The evidence beside that line."""
    return [item for item in reading.evidence if item.metric != EXPLAINED]


def unlike_sentences(comparison: Comparison) -> list[str]:
    """What makes the sides unlike, apart from the change that was meant."""
    return [
        clean(f"the sides differ in more than the change: {item.what} {item.baseline} against {item.candidate}")
        for item in comparison.unlike
    ]


def limits(comparison: Comparison) -> list[str]:
    """What a reader must know before believing any of it."""
    failures = [f"not read: {failure.message}" for failure in comparison.failures]
    notes = [comparison.judgement.method_note] if comparison.judgement.method_note else []
    return [*unlike_sentences(comparison), *(clean(line) for line in (*failures, *comparison.caveats, *notes))]


def read_names(comparison: Comparison) -> tuple[str, str]:
    """What each side was read from: files, or how many traces in which folder, told apart on both sides together."""
    sides = [dict.fromkeys(side.sources) for side in (comparison.baseline, comparison.candidate)]
    sources = [source for side in sides for source in side]
    folders = Counter(source.rpartition("/")[0] for source in dict.fromkeys(sources))
    shared = [folder for folder, count in folders.items() if folder and count > 1]
    names = dict(zip(sources, text.source_names(sources), strict=True))
    folder_names = dict(zip(shared, text.source_names(shared), strict=True))
    shown, other = (_listed(_places(side, names, folder_names)) for side in sides)
    return shown, other


def _places(side: Iterable[str], names: Mapping[str, str], folder_names: Mapping[str, str]) -> list[str]:
    """The traces of a side: several of one folder as the folder with their number."""
    of_folder: dict[str, list[str]] = {}
    for source in side:
        of_folder.setdefault(source.rpartition("/")[0], []).append(source)
    places: list[str] = []
    for folder, found in of_folder.items():
        is_folder = folder in folder_names and len(found) > 1
        places += [f"{len(found)} traces in {folder_names[folder]}"] if is_folder else [names[one] for one in found]
    return places


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more
