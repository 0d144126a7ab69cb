"""A report for a notebook: verdict, budget, causes, where, the next command."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

from profkit.model.budget import IDLE_PARTS, WORK_PARTS
from profkit.model.documents.rank_report import DeviceReport
from profkit.model.documents.report import Report
from profkit.render.notebook import elements
from profkit.render.notebook.elements import element
from profkit.render.words import fleet, places
from profkit.render.words import triage as words
from profkit.shell import clean

_COLORS: Final = {  # of Okabe and Ito, who chose them for readers who see few colours
    "compute": "#0072B2",
    "comm_exposed": "#D55E00",
    "copy_exposed": "#E69F00",
    "idle_data": "#CC79A7",
    "idle_sync": "#009E73",
    "idle_launch": "#56B4E9",
    "idle_host": "#F0E442",
    "idle_dependency": "#777777",
    "idle_unknown": "#BBBBBB",
}
_BAR: Final = "display:flex;height:18px;max-width:60em;border:1px solid rgba(128,128,128,0.6);margin-top:6px"
_SWATCH: Final = "display:inline-block;width:0.8em;height:0.8em;margin-right:4px;border:1px solid rgba(128,128,128,0.6)"
_MOST_CAUSES: Final = 3


def drawn(report: Report) -> str:
    """The report as HTML."""
    verdict = report.verdict
    rank = words.shown_rank(report)
    device = words.main_device(rank) if rank is not None else None
    causes = [text for reason in words.reasons(verdict) for text in reason.statements][:_MOST_CAUSES]
    tool = verdict.next_tool
    return elements.page(
        elements.answer(
            words.verdict_name(verdict), words.tone(verdict), words.headline(verdict), words.sureness(report)
        ),
        elements.line(". ".join(fleet.step_facts(report))),
        *(_budget(report, device) if device is not None else ()),
        elements.listed("why we think so" if words.is_explained(verdict) else "what we saw", causes),
        _labelled("where", places.place_sentence(verdict.findings[0]) if verdict.findings else ""),
        _labelled("what to do", "; then ".join(clean(fix) for fix in verdict.fixes[:2])),
        _labelled("next tool", f"{words.no_tool_needed(verdict)}{tool.name}: {tool.purpose}"),
        elements.command("run", tool.command),
        elements.faded(words.origin(report, rank)) if rank is not None else None,
    )


def _labelled(label: str, text: str) -> ET.Element | None:
    return element("div", element("b", f"{label}: "), text, style="margin-top:6px") if text else None


def _budget(report: Report, device: DeviceReport) -> list[ET.Element]:
    """Where the step goes as a bar, and its parts in words; nothing for an empty window."""
    if device.budget.window_ns == 0:
        return []
    shares = device.budget.tenths
    idle = sorted(IDLE_PARTS, key=lambda name: -shares[name])
    shown = [name for name in (*WORK_PARTS, *idle) if shares[name]]
    labels = words.labels_of(device, is_beside_ranks=words.is_joint(report))
    said = {name: f"{labels[name]} {words.percent(shares[name])}" for name in shown}
    bar = [
        element("div", style=f"width:{shares[name] / 10:.1f}%;background:{_COLORS[name]}", title=said[name])
        for name in shown
    ]
    legend = [
        element(
            "span",
            element("span", style=f"{_SWATCH};background:{_COLORS[name]}"),
            said[name],
            style="margin-right:1.2em;white-space:nowrap",
        )
        for name in shown
    ]
    return [element("div", *bar, style=_BAR), element("div", *legend)]
