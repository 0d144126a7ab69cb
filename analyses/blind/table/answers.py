"""The faults of the table, what profkit answered of each, and whether that is right."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from analyses.accuracy.shares import share_of
from analyses.accuracy.shown.tables import Table, markdown, share_words
from analyses.blind.rounds import HEALTHY, SLOW, Look, Score, Timing, rows_of

HERE: Final = Path(__file__).resolve().parent
LOOKS, TIMINGS = HERE / "looks.jsonl", HERE / "timings.jsonl"
_FIRST: Final = 3
"""Among so many findings the fault stands where an answer is partly right: as many as a screen leads with."""
_HOW: Final = """\
## The table of faults, rebuilt

Before the rounds, a reader wrote 22 programs with one fault each; those are not kept. The authors of the rules built
these faults again, from their names, in `analyses/blind/table`, with a healthy twin each, and wrote down what must be
found before they asked. So this is **regression, not first looks**. Right: the headline's first finding names the
fault, and the answer its line where there is one; partly: it stands among the first three. A false alarm is a finding
of that kind on the twin. Of the last two programs only the exit code is asked; they are not counted.
Some answers are from after mends that the first ones led to (`looks.jsonl` has all).
After their first answers, which were wrong, `logging` and `generation` were made longer, too; `distillation` was timed
again, since its twin had taken longer; what must be found was changed for five (`table.toml` says how).
"""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `table.toml`."""

    fault: str
    script: str = "own"
    ids: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    never: str = ""


def faults() -> dict[str, Fault]:
    """All faults, by name."""
    return msgspec.toml.decode((HERE / "table.toml").read_bytes(), type=dict[str, Fault])


def timings() -> dict[str, Timing]:
    """The times of the twins without a profiler, by name."""
    return {one.name: one for one in rows_of(TIMINGS, Timing)}


def looks() -> dict[tuple[str, str], Look]:
    """The newest answer of each program and side."""
    return {(one.name, one.side): one for one in rows_of(LOOKS, Look)}


def first_looks() -> dict[tuple[str, str], Look]:
    """The first answer of each program and side."""
    return {(one.name, one.side): one for one in reversed(rows_of(LOOKS, Look))}


def judged(known: dict[tuple[str, str], Look]) -> list[Score]:
    """How each fault that was asked about is scored."""
    return [
        judge(name, fault, known[name, SLOW], known[name, HEALTHY])
        for name, fault in faults().items()
        if (name, SLOW) in known and (name, HEALTHY) in known
    ]


def judge(name: str, fault: Fault, slow: Look, healthy: Look) -> Score:
    """The score of an answer."""
    if not fault.ids:
        is_kept = slow.exit_code == healthy.exit_code == 0
        return Score(name=name, score="right" if is_kept else "wrong", why=f"exit {slow.exit_code}")
    leads = [one.id for one in slow.findings if one.title in slow.headline]
    order = list(dict.fromkeys([*leads, *(one.id for one in slow.findings)]))
    found = next((one for one in order[:_FIRST] if one in fault.ids), "")
    is_said = not fault.never or fault.never not in " ".join(slow.screen.split())
    is_right = leads[:1] == [found] and _has_line(fault, slow) and is_said
    alarms = [one.id for one in healthy.findings if one.id in fault.ids]
    return Score(
        name=name,
        score="right" if is_right else "partly" if found and is_said else "wrong",
        finding=found,
        alarm=bool(alarms),
        why=slow.headline or f"no report, exit {slow.exit_code}",
    )


def _has_line(fault: Fault, look: Look) -> bool:
    """Whether the answer shows the line: what stands before the other findings of the screen."""
    said = " ".join(look.screen.split("also found")[0].split())
    return not fault.lines or any(" ".join(part.split()) in said for part in fault.lines)


def part() -> str:
    """The section of docs/accuracy.md; "" before profkit was asked."""
    known, times = looks(), timings()
    scores = judged(known)
    if not scores:
        return ""
    dates, commits = (
        ", ".join(dict.fromkeys(said)) for said in zip(*((one.date, one.commit) for one in known.values()), strict=True)
    )
    loads = [one.load for one in times.values()]
    said = [
        f"Asked on {dates} at {commits}.",
        f"First answers: {_shares(judged(first_looks()))}.",
        f"Newest ones, as below: {_shares(scores)}.",
        f"The load of the two cores before a turn was {min(loads):.0f} to {max(loads):.0f}: gains are rough.",
    ]
    rows = [
        (
            f"`{one.name}`",
            faults()[one.name].fault,
            f"{100 * (1 - times[one.name].healthy_s / times[one.name].slow_s):.0f} %" if one.name in times else "–",
            one.score + (", false alarm on the twin" if one.alarm else ""),
            one.why,
        )
        for one in scores
    ]
    head = ("program", "fault", "gain", "score", "headline")
    return "\n".join([_HOW, *said, "", markdown(Table(title="", head=head, rows=tuple(rows)))])


def _shares(scores: Iterable[Score]) -> str:
    """How many of the faults that cost time were found, and how many twins were blamed."""
    costly = [one for one in scores if faults()[one.name].ids]
    counted = {
        "right": [one.score == "right" for one in costly],
        "right or partly": [one.score != "wrong" for one in costly],
        "false alarms": [one.alarm for one in costly],
    }
    return ", ".join(f"{name} {share_words(share_of(flags))}" for name, flags in counted.items())
