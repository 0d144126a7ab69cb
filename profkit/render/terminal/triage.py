"""The report for a terminal: the verdict is the first line; who stops after three lines has been told the truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from profkit.model.budget import IDLE_PARTS, WORK_PARTS
from profkit.model.documents.rank_report import DeviceReport, RankReport, TableView
from profkit.model.documents.report import Bottleneck, Report
from profkit.model.finding import Finding
from profkit.render.terminal import layout, page
from profkit.render.terminal.layout import MARGIN, Line, Segment
from profkit.render.terminal.page import PARTS, PROSE_WIDTH, Block
from profkit.render.words import fleet, places
from profkit.render.words import triage as text
from profkit.shell import clean, quoted_path
from profkit.units import format_fraction

_MAX_STREAMS: Final = 6
_MAX_RANKS: Final = 16


def render(
    report: Report, *, width: int | None = None, color: bool | None = None, verbose: bool = False, **_: object
) -> str:
    """The report as text of at most `width` columns (the terminal's by default); commands are never broken.

    Colour follows the terminal and `NO_COLOR` unless it is said. `verbose` adds every table, check and warning.
    """
    columns = page.columns_of(width)
    rooms = (_FULL,) if verbose else _ROOMS
    return page.printed(page.fitting(rooms, lambda room: _blocks(report, columns, room)), color)


class _Room(msgspec.Struct, frozen=True, kw_only=True):
    """What a report has room for: all there is (`is_full`), or what helps most, in less and less of it."""

    is_full: bool = False
    n_findings: int | None = None
    """Findings of the verdict with their reasons and fixes; the others are named under "also found"."""
    has_recorded: bool = True
    has_measure: bool = True
    has_ruled_out: bool = True


_FULL: Final = _Room(is_full=True)
_ROOMS: Final = (
    _Room(),
    _Room(has_recorded=False),
    _Room(has_recorded=False, has_measure=False),
    _Room(n_findings=2, has_recorded=False, has_measure=False),
    _Room(n_findings=2, has_recorded=False, has_measure=False, has_ruled_out=False),
    _Room(n_findings=1, has_recorded=False, has_measure=False, has_ruled_out=False),
)
"""From the most to the least: what is left out first is needed least. The rest is under `-v` and in JSON."""


def _blocks(report: Report, width: int, room: _Room) -> Iterable[Block]:
    """As much as there is room for; the verdict, its reasons and the next command always."""
    yield from _headline_blocks(report, width, room)
    yield from _detail_blocks(report, width) if room.is_full else ()
    yield _more(report, width, room)


def _headline_blocks(report: Report, width: int, room: _Room) -> Iterable[Block]:
    """What everyone reads, in the order in which it is needed."""
    prose, is_full = min(width, PROSE_WIDTH), room.is_full
    rank = text.shown_rank(report)
    is_open = report.verdict.bottleneck is Bottleneck.INCONCLUSIVE
    yield _verdict(report, prose)
    yield from _handover(report, prose, is_full=is_full)
    if is_open:
        yield _next_tool(report, prose, room)
    yield _fleet(report, width, is_full=is_full)
    yield _budget(report, rank, width) if rank is not None else []
    yield _why(report, prose, room)
    yield _where(report, prose, room)
    yield _what_to_do(report, prose, room)
    if not is_open:
        yield _next_tool(report, prose, room)
    yield _ranks(report, width, is_full=is_full) if len(report.ranks) > 1 and not text.is_joint(report) else []
    yield _around(report, rank, prose, room) if rank is not None else []
    yield _limits(report, rank, prose, is_full=is_full)


def _handover(report: Report, width: int, *, is_full: bool) -> Iterable[Block]:
    """What a second tool says of the verdict, where there is one."""
    if report.handover is not None:
        from profkit.render.terminal import crosscheck

        yield crosscheck.block(report.handover, width, is_full=is_full)


def _handover_tables(report: Report, width: int) -> Iterable[Block]:
    if report.handover is not None:
        from profkit.render.terminal import crosscheck

        yield from crosscheck.tables(report.handover, width)


def _verdict(report: Report, width: int) -> Block:
    verdict = report.verdict
    meaning = text.headline(verdict)
    name = f" {text.verdict_name(verdict)} "
    if verdict.bottleneck is Bottleneck.INCONCLUSIVE:
        return [(("  ", ""), (name, "open")), *layout.wrapped(MARGIN, meaning, width, style="strong")]
    sure, style = text.sureness(report), text.tone(verdict)
    one_line: Line = (("  ", ""), (name, style), (f"  {meaning}  ", "strong"), (f"  {sure}", "dim"))
    if sum(layout.cell_width(content) for content, _ in one_line) <= width:
        block: Block = [one_line]
    else:
        block = layout.flowed(("  ", ""), [(name, style), (sure, "dim")], width)
        block += layout.wrapped(MARGIN, meaning, width, style="strong")
    facts = [sentence for sentence in (text.step_sentence(report), text.gain_sentence(verdict)) if sentence]
    if sum(layout.cell_width(fact) + len(MARGIN) for fact in facts) <= width:
        facts = [".  ".join(facts)] if facts else []
    facts += [sentence] if (sentence := fleet.prediction_sentence(report)) else []
    return block + [line for fact in facts for line in layout.wrapped(MARGIN, fact, width)]


def _fleet(report: Report, width: int, *, is_full: bool) -> Block:
    """Where the step of each rank goes, and what ties the ranks together."""
    if report.fleet is None or not report.fleet.rows:
        return []
    headers = fleet.headers_of(report.fleet)
    rows = fleet.cells_of(report.fleet, is_full=is_full)
    block = page.titled(fleet.table_title(report), width)
    lines = layout.table(headers, rows, [True, *[False] * (len(headers) - 2), True], width)
    shown = report.fleet.rows if is_full else report.fleet.shown
    for place, row in enumerate(shown, 1):  # who is late is drawn strongest
        lines[place] = tuple((content, "strong" if row.cause else style) for content, style in lines[place])
    block += lines
    said = ""
    for label, line in fleet.facts_of(report.fleet, is_full=is_full):
        head = layout.label(label) if label != said else " " * layout.LABEL_WIDTH
        block += layout.wrapped(head, line, min(width, PROSE_WIDTH), style="dim")
        said = label
    return block


def _budget(report: Report, rank: RankReport, width: int) -> Block:
    device = text.main_device(rank)
    if device is None or device.budget.window_ns == 0:
        return []
    title, of = text.budget_title(report, rank), text.budget_of(report, rank, device)
    shares = device.budget.tenths
    work = {name: shares[name] for name in WORK_PARTS}
    idle = {name: shares[name] for name in sorted(IDLE_PARTS, key=lambda name: -shares[name])}
    bar = layout.bar(((share, *PARTS[name]) for name, share in (work | idle).items()), width)
    head: Line = ((MARGIN + title, "label"), (f"   {clean(of)}" if of else "", "dim"))
    if sum(layout.cell_width(content) for content, _ in head) > width:
        head = head[:1]
    idle_word = "rest" if device.kind == "cpu" else "idle"
    labels = text.labels_of(device, is_beside_ranks=text.is_joint(report))
    is_unseen = device.kind == "cpu" and bool(idle["idle_unknown"]) and not any(work.values())
    busy = [] if is_unseen else _legend(labels, "busy", work, width)  # what was not recorded may be work
    return [head, bar, *busy, *_legend(labels, "all" if is_unseen else idle_word, idle, width)]


def _legend(labels: Mapping[str, str], word: str, shares: dict[str, int], width: int) -> Block:
    """A sum and the parts that it adds up from; parts that round to 0.0 are left out."""
    first: Segment = (f"{MARGIN}{word} {text.percent(sum(shares.values())):>7}   ", "label")
    entries = [
        (f"{PARTS[name][0]} {labels[name]} {text.percent(share)}", PARTS[name][1])
        for name, share in shares.items()
        if share
    ]
    return layout.flowed(first, entries, width) or [(first,)]


def _why(report: Report, width: int, room: _Room) -> Block:
    reasons = text.reasons(report.verdict, is_full=room.is_full, n_findings=room.n_findings)
    if not reasons:
        return []
    block = page.titled("why we think so" if text.is_explained(report.verdict) else "what we saw", width)
    number = 0
    for place, reason in enumerate(reasons):
        if place > 0 and reason.statements:
            block += layout.wrapped("  also  ", _finding_line(reason.finding, report), width, first_style="dim")
        where = places.place_sentence(reason.finding) if place > 0 else ""
        for statement in (*reason.statements, *filter(None, [where])):
            number += 1
            block += layout.wrapped(f"   {number}  ", statement, width, first_style="dim")
    return block


def _where(report: Report, width: int, room: _Room) -> Block:
    """The lines of the user's code that cause the first finding."""
    first = next(iter(report.verdict.findings), None)
    if first is None or not first.places:
        return []
    block = layout.wrapped(layout.label("where"), places.place_sentence(first), width, first_style="label")
    others = places.shown_places(first, is_full=room.is_full)[1:]
    for share in others if room.n_findings is None else ():
        block += layout.wrapped(" " * layout.LABEL_WIDTH, places.place_line(share).strip(), width)
    return block


def _finding_line(finding: Finding, report: Report) -> str:
    return f"{clean(finding.title)} ({text.weight(finding, report)})"


def _what_to_do(report: Report, width: int, room: _Room) -> Block:
    verdict = report.verdict
    block: Block = []
    for place, fix in enumerate(verdict.fixes[: room.n_findings]):
        head = layout.label("what to do") if place == 0 else "then".rjust(layout.LABEL_WIDTH - 2) + "  "
        block += layout.wrapped(head, clean(fix), width, first_style="label" if place == 0 else "dim")
    block += page.labelled("prove it", verdict.proof, width)
    measure = verdict.measure.text if verdict.measure is not None and room.has_measure else ""
    return block + page.labelled("measure it", measure, width, style="command")


def _next_tool(report: Report, width: int, room: _Room) -> Block:
    tool = report.verdict.next_tool
    block = page.labelled("next tool", f"{text.no_tool_needed(report.verdict)}{tool.name}: {tool.purpose}", width)
    if tool.command:
        block.append((("    ", ""), (clean(tool.command), "command")))
    if tool.look_for:
        block += layout.wrapped("    look for   ", clean(tool.look_for), width, first_style="dim")
    return block + page.labelled("ruled out", ", ".join(report.verdict.ruled_out) if room.has_ruled_out else "", width)


def _ranks(report: Report, width: int, *, is_full: bool) -> Block:
    title, headers, rows = text.rank_table(report.ranks)
    chosen = text.shown_rank(report)
    shown = rows if is_full else rows[:_MAX_RANKS]
    if chosen is not None and chosen in report.ranks[len(shown) :]:
        shown = [*shown, rows[report.ranks.index(chosen)]]
    lines = layout.table(headers, shown, [True, *([False] * (len(headers) - 2)), True], width)
    return [*page.titled(title, width), *lines, *page.hidden(len(rows) - len(shown))]


def _around(report: Report, rank: RankReport, width: int, room: _Room) -> Block:
    """Devices and other findings, in full also streams and step times: what one looks at after the verdict."""
    block: Block = []
    for device in rank.devices if room.is_full else ():
        if device.streams:
            name = f"device {device.device}" if len(rank.devices) > 1 else "streams"
            block += layout.flowed((layout.label(name), "label"), _stream_entries(device), width)
    if len(rank.devices) > 1:
        headers = ("device", *text.RANK_HEADERS[2:])
        rows = [(str(device.device), *text.device_shares(device)) for device in rank.devices]
        block += layout.table(headers, rows, [True, *([False] * 4), True], width)
    spread = text.spread_sentence(rank, is_of_many=text.is_joint(report))
    block += page.labelled("steps", spread if room.is_full else "", width)
    block += page.labelled("roof", text.roof_sentence(report, rank), width)
    untold = () if room.n_findings is None else report.verdict.findings[room.n_findings :]
    others = [*untold, *text.other_findings(report)]
    named = "; ".join(f"{clean(finding.title)} ({text.weight(finding, report, of='')})" for finding in others)
    return block + page.labelled("also found", named, width)


def _stream_entries(device: DeviceReport) -> Iterable[Segment]:
    hidden = device.comm_hidden_fraction
    for use in device.streams[:_MAX_STREAMS]:
        yield f"{use.stream} {clean(use.label)} {format_fraction(use.occupancy)}", ""
    if device.n_streams > _MAX_STREAMS:
        yield f"and {device.n_streams - _MAX_STREAMS:,} more", "dim"
    if hidden is not None:
        yield f"({format_fraction(hidden)} of comm is hidden under compute)", "dim"


def _limits(report: Report, rank: RankReport | None, width: int, *, is_full: bool) -> Block:
    """Caveats, sources that failed, and what was not analysed."""
    notes = text.caveats(report)
    if rank is not None and rank.warnings and not is_full:
        notes.append(f"{len(rank.warnings)} warning{'s' if len(rank.warnings) > 1 else ''} while reading: -v")
    block = page.listed("caveats", notes, width)
    for label, group in fleet.set_apart(report).items():
        block += page.listed(label, fleet.left_out_lines(group, is_full=is_full), width)
    return block + page.listed("not read", fleet.failure_lines(report.failures), width, style="red")


def _more(report: Report, width: int, room: _Room) -> Block:
    """What was read and where to go from here; commands stay whole."""
    rank = text.shown_rank(report)
    prose = min(width, PROSE_WIDTH)
    block: Block = []
    if rank is not None:
        block += page.labelled("read", text.origin(report, rank, is_full=room.is_full), prose, style="dim")
        told = text.recorded_sentence(rank, is_full=room.is_full) if room.has_recorded else ""
        block += page.labelled("recorded", told, prose, style="dim")
        block += page.labelled("lines from", text.again_line(rank), prose, style="dim")
    ids = [finding.id for finding in (*report.verdict.findings, *text.other_findings(report))]
    entries = [(f"profkit explain {clean(ids[0])}", layout.WHOLE)] if ids else []
    if rank is not None and any(finding.places for finding in report.findings):
        entries.append((f"profkit where {quoted_path(rank.source)}", layout.WHOLE))
    entries += [] if room.is_full else [("-v", "")]
    entries += [("-f json", ""), ("-o report.html", "")]
    return block + page.more(entries, prose)


def _detail_blocks(report: Report, width: int) -> Iterable[Block]:
    """Everything else that is known of the shown rank: checks, tables, other findings, warnings, gaps."""
    prose = min(width, PROSE_WIDTH)
    rank = text.shown_rank(report)
    if rank is not None:
        yield from _handover_tables(report, width)
        yield _checks(rank, prose)
        if text.is_joint(report) and not rank.sections:
            yield layout.wrapped(MARGIN, f"tables of a rank: profkit triage {quoted_path(rank.source)} -v", width)
        known = {check.id for check in rank.checks}
        for table in (table for section in rank.sections for table in section.tables):
            if table.rows and not {row[0] for row in table.rows} <= known:  # the checks stand above already
                yield _table(table, width)
    for finding in text.other_findings(report):
        yield _finding(finding, report, prose)
    if rank is not None and rank.warnings:
        yield [*page.titled("warnings", prose), *page.marked((("    - ", warning) for warning in rank.warnings), prose)]
    if report.skipped:
        block = page.titled("not analysed", prose)
        for skip in report.skipped:
            block += layout.wrapped("    - ", clean(f"{skip.analyzer}: {skip.reason}"), prose)
            block += layout.wrapped("      -> ", clean(skip.how_to_get), prose, style="dim") if skip.how_to_get else []
        yield block


def _checks(rank: RankReport, width: int) -> Block:
    if not rank.checks:
        return []
    block = page.titled("checks of the capture", width)
    for check in rank.checks:
        head = f"{MARGIN}{'ok' if check.ok else 'FAILS':<7}"
        said = clean(f"{check.id}: {check.message}")
        block += layout.wrapped(head, said, width, first_style="dim" if check.ok else "bold red")
    return block


def _table(table: TableView, width: int) -> Block:
    is_text = [unit not in ("ns", "fraction", "count", "bytes") for unit in table.units]
    rows = [
        [
            text.name_cell(str(value)) if flag and value is not None else text.cell(value, unit)
            for value, unit, flag in zip(row, table.units, is_text, strict=True)
        ]
        for row in table.rows
    ]
    headers = [clean(header) for header in table.headers]
    block: Block = [*page.titled(table.title, width), *layout.table(headers, rows, is_text, width)]
    return block + (layout.wrapped(MARGIN, clean(table.note), width, style="dim") if table.note else [])


def _finding(finding: Finding, report: Report, width: int) -> Block:
    block = page.titled(f"{finding.id}: {_finding_line(finding, report)}", width)
    said = (text.finding_saves(finding, report), *(text.statement(item, is_full=True) for item in finding.evidence))
    block += page.marked((("    - ", statement) for statement in said if statement), width)
    block += page.marked((("    at ", places.place_line(share).strip()) for share in finding.places), width)
    return block + layout.wrapped("    -> ", clean(finding.fix), width)
