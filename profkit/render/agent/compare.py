"""A comparison for an agent: the answer, its interval, the step by parts, readings with evidence ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.documents.comparison import Comparison, Judgement
from profkit.render.agent.page import (
    Entry,
    Need,
    command,
    fact,
    finding_lines,
    line,
    number,
    page,
    pairs,
    plain,
    quoted,
)
from profkit.render.words import compare as words
from profkit.render.words import triage as text
from profkit.render.words.keys import keyed
from profkit.units import format_change, format_signed_ns

_MOST_WORKS: Final = 6
_MOST_CONFIGURATIONS: Final = 8


def render(comparison: Comparison, **_: object) -> str:
    """The comparison as text of at most `page.MOST_CHARS` characters."""
    entries = [
        *_answer(comparison),
        *_next(comparison),
        *_parts(comparison),
        *_readings(comparison),
        *_sides(comparison),
        *_works(comparison),
        *_limits(comparison),
    ]
    return page("compare", "compare", entries)


def _answer(comparison: Comparison) -> Iterable[Entry]:
    judged = comparison.judgement
    word = "" if judged.is_comparable else "not comparable: the sides do different work"
    yield line(fact("answer", judged.answer.value, "judgement.answer", says=word), Need.ANSWER)
    yield line(f"  {plain(words.answer_sentence(comparison))}", Need.ANSWER)
    for side, value in (("baseline", judged.baseline_mean), ("candidate", judged.candidate_mean)):
        says = f"mean {judged.metric}"
        yield line(fact(side, value, f"judgement.{side}_mean", unit=judged.unit, says=says), Need.ANSWER)
    if judged.is_comparable:
        says = f"{format_change(judged.change)}; {'higher' if judged.higher_is_better else 'lower'} is better"
        yield line(fact("change", judged.change, "judgement.change", says=says), Need.ANSWER)
    yield line(_interval(judged), Need.ANSWER)
    runs = f"{judged.n[0]} and {judged.n[1]} {judged.unit_of_replication}s [judgement.n]; test: {plain(judged.test)}"
    yield line(f"runs: {runs}")
    if (least := judged.minimum_detectable_effect) is not None:
        yield line(fact("sees changes from", least, "judgement.minimum_detectable_effect"))
    if (more := judged.runs_to_settle) is not None:
        yield line(fact("runs a side that would settle it", more, "judgement.runs_to_settle"))
    for place, (name, each) in enumerate(comparison.configurations[:_MOST_CONFIGURATIONS]):
        path = f"configurations[{place}].judgement.change"
        yield line(f"  {fact(f'{quoted(name)}, change', each.change, path, says=each.answer.value)}", Need.FINDING)


def _interval(judged: Judgement) -> str:
    if judged.change_interval is None:
        return "interval of the change = none [judgement.change_interval] these runs support none"
    low, high = map(number, judged.change_interval)
    return f"interval of the change = {low} to {high} [judgement.change_interval] 95 %"


def _next(comparison: Comparison) -> Iterable[Entry]:
    found = words.next_command(comparison)
    if found:
        yield command("next", found)
        return
    tools = [tool for reading in comparison.readings for tool in reading.next_tools if tool.command]
    if tools:
        yield command(f"next: {plain(tools[0].name)}, {plain(tools[0].purpose)}", tools[0].command)
        return
    yield line("next: profkit triage on each side shows what limits it", Need.ANSWER)


def _parts(comparison: Comparison) -> Iterable[Entry]:
    waterfall = comparison.waterfall
    if waterfall is None:
        return
    labels = text.part_labels(is_cpu=comparison.baseline.is_cpu)
    says = f"{words.per(comparison)}, {format_signed_ns(waterfall.delta_ns)}; parts that are 0 left out"
    yield line(fact("change of the step", waterfall.delta_ns, "waterfall.change_ns", unit="ns", says=says))
    for place, bar in enumerate(waterfall.bars):
        if bar.baseline_ns or bar.candidate_ns:
            values = keyed(bar, "baseline_ns candidate_ns change_ns=delta_ns")
            yield line(f"  {bar.name} [waterfall.parts[{place}]]: {pairs(values)} {labels[bar.name]}")


def _readings(comparison: Comparison) -> Iterable[Entry]:
    for place, reading in enumerate(comparison.readings):
        need = Need.MAIN if place == 0 else Need.FINDING
        yield from finding_lines(reading, f"readings[{place}]", says="", need=need)
    for place, item in enumerate(comparison.findings):
        values = keyed(item, "baseline_fraction candidate_fraction")
        yield line(
            f"finding {item.presence}, {item.id} [findings[{place}]]: {pairs(values)} {plain(item.title)}", Need.FINDING
        )


def _sides(comparison: Comparison) -> Iterable[Entry]:
    for name, side in (("baseline", comparison.baseline), ("candidate", comparison.candidate)):
        if side.bottleneck:
            says = f"late rank {side.late_rank}" if side.late_rank is not None else ""
            yield line(fact(f"verdict on the {name}", side.bottleneck, f"{name}.bottleneck", says=says))
        values = keyed(side, "n_runs n_steps busy_comm_ns? comm_hidden_fraction peak_memory_bytes")
        yield line(f"{name} [{name}]: {pairs(values)}", Need.LIMIT)


def _works(comparison: Comparison) -> Iterable[Entry]:
    for name, account in (("compute", comparison.compute), ("comm", comparison.comm)):
        for place, row in enumerate(account.rows[:_MOST_WORKS] if account is not None else ()):
            if row.delta_ns:
                values = keyed(row, "change_ns=delta_ns by_count_ns by_duration_ns")
                yield line(f"{name} [{name}.rows[{place}]]: {pairs(values)} {quoted(words.work_name(row))}", Need.RANK)


def _limits(comparison: Comparison) -> Iterable[Entry]:
    for said in words.limits(comparison):
        yield line(f"caveat: {plain(said)}", Need.LIMIT)
