"""The report as a page: the verdict on the first screen, then all that was measured, each with a place to look."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from profkit.findings import KINDS
from profkit.model.documents.rank_report import RankReport, Section, TableView
from profkit.model.documents.report import Bottleneck, Report
from profkit.model.documents.tracks import Tracks
from profkit.model.finding import Evidence, Finding
from profkit.render.html import page
from profkit.render.html.parts import bars, lanes, rows, tables
from profkit.render.html.parts.glossary import glossary
from profkit.render.words import crosscheck as handover
from profkit.render.words import fleet, places
from profkit.render.words import triage as text
from profkit.shell import clean
from profkit.units import format_ns

_WORK: Final = ("kernels", "operators", "roof", "precision")
_MODULES: Final = ("code",)
_MEMORY: Final = ("memory", "allocations")
_ELSEWHERE: Final = ("quality", "steps")
"""Analyzers whose tables stand in another view."""


def render(report: Report, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    rank = text.shown_rank(report)
    links = Links(report.tracks, report.ranks, None if rank is None else rank.rank)
    return page.made(
        "triage.html.j2",
        title=f"{text.verdict_name(report.verdict)}: {text.headline(report.verdict)}",
        sources=_sources(report),
        hosts=report.fleet.hosts if report.fleet is not None else (),
        with_paths=with_paths,
        tracks=report.tracks,
        is_undrawn=report.fleet is not None and not report.tracks,
        is_cpu=text.is_cpu(rank),
        report=report,
        verdict=report.verdict,
        rank=rank,
        words=text,
        left_out=[
            (label, fleet.left_out_lines(group, is_full=True)) for label, group in fleet.set_apart(report).items()
        ],
        failures=fleet.failure_lines(report.failures),
        facts=fleet.step_facts(report),
        head=_head(report, links),
        budget=None if rank is None else _budget(report, rank, links),
        findings=[_finding(one, links) for one in (*report.verdict.findings, *text.other_findings(report))],
        steps=_steps(report, rank, links),
        still=lanes.still(report.tracks),
        curves=lanes.curves(_drawn(report, rank)),
        views=_views(report, rank, links),
        ranks=rows.ranks(report),
        groups=None if report.fleet is None else rows.groups_of(report.fleet),
        second=_second(report),
        roof="" if rank is None else text.roof_sentence(report, rank),
        read=_read(report, rank),
        glossary=glossary(is_cpu=text.is_cpu(rank)),
        is_inconclusive=report.verdict.bottleneck is Bottleneck.INCONCLUSIVE,
    )


def _sources(report: Report) -> list[str]:
    """The paths that a text of the page may hold: of what was read, and of the lines that findings name."""
    left_out = report.fleet.left_out if report.fleet is not None else ()
    read = [one.source for group in (report.ranks, report.failures, left_out) for one in group]
    return read + [share.place.file for finding in report.findings for share in finding.places]


# ------------------------------------------------------------------------------------------------------- first screen


def _head(report: Report, links: Links) -> Mapping[str, Any]:
    """The reasons of the verdict and the lines behind it, each with its link."""
    first = next(iter(report.verdict.findings), None)
    reasons = enumerate(text.reasons(report.verdict))
    return {
        "see": "" if first is None else links.to_finding(first),
        "reasons": [_reason(reason, links, is_first=not place) for place, reason in reasons],
        **_places(first, links),
    }


def _reason(reason: text.Reason, links: Links, *, is_first: bool) -> Mapping[str, Any]:
    finding = reason.finding
    proofs = {text.statement(item, is_full=False): links.to_evidence(finding, item) for item in finding.evidence}
    where = "" if is_first else places.place_sentence(finding)
    return {
        "is_first": is_first,
        "finding": finding,
        "statements": [(statement, proofs.get(statement, "")) for statement in reason.statements],
        "where": where,
        "where_see": links.to_place(finding, 0) if where else "",
    }


def _places(first: Finding | None, links: Links) -> Mapping[str, Any]:
    """The lines of the user's code that cause the first finding."""
    shown = () if first is None else places.shown_places(first)
    if first is None or not shown:
        return {"where": "", "where_see": "", "more_places": ()}
    return {
        "where": places.place_sentence(first),
        "where_see": links.to_place(first, first.places.index(shown[0])),
        "more_places": [
            (places.place_line(one).strip(), links.to_place(first, first.places.index(one))) for one in shown[1:]
        ],
    }


def _budget(report: Report, rank: RankReport, links: Links) -> bars.BudgetBar | None:
    device = text.main_device(rank)
    if device is None or device.budget.window_ns == 0:
        return None
    return bars.budget_bar(
        rank,
        device,
        title=text.budget_title(report, rank),
        of=text.budget_of(report, rank, device),
        labels=text.labels_of(device, is_beside_ranks=text.is_joint(report)),
        see=lambda key: links.to(key, rank.rank),
    )


# -------------------------------------------------------------------------------------------------------------- views


def _drawn(report: Report, rank: RankReport | None) -> Tracks | None:
    """The rows of the shown rank."""
    if rank is None:
        return None
    return next((one for one in report.tracks if one.source == rank.source and one.rank == rank.rank), None)


def _steps(report: Report, rank: RankReport | None, links: Links) -> Mapping[str, Any] | None:
    """The steps of the shown rank, one column each."""
    if rank is None or not rank.steps.durations_ns:
        return None
    columns = lanes.steps(rank.steps.durations_ns, _drawn(report, rank), lambda key: links.to(key, rank.rank))
    return {
        "columns": columns,
        "longest": format_ns(max(rank.steps.durations_ns)),
        "n_more": len(rank.steps.durations_ns) - len(columns),
        "spread": text.spread_sentence(rank, is_of_many=text.is_joint(report)),
        "has_parts": any(column.segments for column in columns),
    }


def _finding(finding: Finding, links: Links) -> Mapping[str, Any]:
    proofs = {text.statement(item, is_full=True): links.to_evidence(finding, item) for item in finding.evidence}
    lines = [places.place_line(one).strip() for one in finding.places]
    return {
        "finding": finding,
        "kind": KINDS.get(finding.id),
        "see": links.to_finding(finding),
        "evidence": list(proofs.items()),
        "places": [(line, links.to_place(finding, number)) for number, line in enumerate(lines)],
        "command": next((tool.command for tool in finding.next_tools if tool.command), ""),
    }


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one question, or why there are none and how to have them."""

    tables: tuple[tables.Table, ...]
    missing: tuple[tuple[str, str], ...] = ()


def _views(report: Report, rank: RankReport | None, links: Links) -> Mapping[str, View]:
    """The tables of the shown rank, by the view in which people look for them."""
    sections = () if rank is None else rank.sections
    named = (*_WORK, *_MODULES, *_MEMORY, *_ELSEWHERE)
    others = tuple(section.analyzer for section in sections if section.analyzer not in named)
    skipped = {skip.analyzer: (skip.reason, skip.how_to_get) for skip in report.skipped}

    def see(key: str) -> str:
        return links.to(key, None if rank is None else rank.rank)

    def view(names: Sequence[str]) -> View:
        found = [(one, table) for one in sections if one.analyzer in names for table in one.tables if table.rows]
        made = tuple(tables.of_view(table, title=_title(one, table), see=see) for one, table in found)
        missing = () if made else tuple(skipped[name] for name in names if name in skipped)
        return View(tables=made, missing=tuple(dict.fromkeys(missing)))

    return {"work": view(_WORK), "modules": view(_MODULES), "memory": view(_MEMORY), "streams": view(others)}


def _title(section: Section, table: TableView) -> str:
    """What a table is called away from its section, whose title it may need."""
    is_vague = len(section.tables) == 1 and " " not in table.title
    return section.title if is_vague else table.title


def _second(report: Report) -> Mapping[str, Any] | None:
    """What the second tool says of the first."""
    told = report.handover
    if told is None:
        return None
    made = []
    for timeline in told.timelines:
        if timeline.parts:
            made.append(tables.of_words(handover.title(timeline), handover.PART_HEADERS, handover.part_rows(timeline)))
            rows_ = handover.function_rows(timeline)
            made.append(tables.of_words("kernels in both tools", handover.FUNCTION_HEADERS, rows_, n_left=2))
    if told.kernels is not None and told.kernels.kernels:
        rows_ = handover.kernel_rows(told.kernels)
        made.append(tables.of_words("profiled kernels", handover.KERNEL_HEADERS, rows_, n_left=3))
    return {"sentence": handover.sentence(told), "evidence": handover.evidence(told, is_full=True), "tables": made}


def _read(report: Report, rank: RankReport | None) -> Iterable[tuple[str, str]]:
    """What was read, and with what it was recorded."""
    if rank is None:
        return ()
    said = (
        ("read", text.origin(report, rank)),
        ("recorded", text.recorded_sentence(rank)),
        ("lines from", text.again_line(rank)),
    )
    return tuple((label, line) for label, line in said if line)


# -------------------------------------------------------------------------------------------------------------- links


_ON_RANK: Final = re.compile(r"\bon rank (\d{1,7})\b")


class Links:
    """Links from a sentence or a number to the intervals that prove it, "" where the page draws none.

    It knows which proofs the page's timeline holds, by key and rank.
    """

    def __init__(self, tracks: Iterable[Tracks], ranks: Iterable[RankReport] = (), usual: int | None = None) -> None:
        """`ranks` tell which finding a number is of; `usual` is the rank that stands for the others."""
        self._known = {(clean(proof.key), one.rank) for one in tracks for proof in one.proofs if proof.n}
        self._ranks = dict(sorted(self._known, key=lambda pair: pair[1] or 0, reverse=True))
        self._owners = {(one.rank, found.measure.metric): found.id for one in ranks for found in one.findings}
        self._usual = usual

    def to(self, key: str, rank: int | None = None) -> str:
        """The link to a proof of a rank, "" where it has none; of no rank's, that of the usual one, else the first."""
        key = clean(key)
        of = next((one for one in (rank, self._usual) if (key, one) in self._known), self._ranks.get(key))
        if key not in self._ranks or rank not in (None, of):
            return ""
        return f"#see={quote(key, safe=':._-')}" + ("" if of is None else f"&rank={of}")

    def to_finding(self, finding: Finding) -> str:
        """The link to all intervals of a finding, on the rank whose numbers it tells."""
        return self.to(f"finding:{finding.id}", self._rank_of(finding))

    def to_evidence(self, finding: Finding, item: Evidence) -> str:
        """The link to the intervals of one sentence, else to its finding's; on the rank that the sentence names.

        A part of the budget proves what is said of it alone, whatever finding says it.
        """
        named = _ON_RANK.search(item.statement)
        rank = self._rank_of(finding) if named is None else int(named[1])
        parts = item.metric.removeprefix("budget_ns.")
        owner = self._owners.get((rank, item.metric), finding.id)
        keys = (f"part:{parts}",) if parts != item.metric and parts.isidentifier() else ()
        keys = (f"measure:{item.metric}", *keys)
        found = (self.to(key, rank) for key in (*keys, f"finding:{owner}", f"finding:{finding.id}"))
        return next(filter(None, found), "")

    def to_place(self, finding: Finding, number: int) -> str:
        """The link to what a finding has at one of its lines, else to what runs for that line."""
        rank, name = self._rank_of(finding), finding.places[number].place.name
        of = finding.places[number].of or finding.id
        return self.to(f"finding:{of}:place:{number}", rank) or self.to(f"line:{name}", rank)

    def _rank_of(self, finding: Finding) -> int | None:
        """The rank that a finding is about; of one that many have, the rank whose numbers stand for them."""
        if finding.rank is not None:
            return finding.rank
        named = (_ON_RANK.search(item.statement) for item in finding.evidence)
        return next((int(found[1]) for found in named if found is not None), None)
