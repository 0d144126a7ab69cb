"""How profkit decides, drawn and told from its own constants: which question comes first, which tool comes next."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from profkit.model.documents.report import Verdict

REPO: Final = Path(__file__).resolve().parents[2]
PICTURE: Final = REPO / "docs" / "pictures" / "decision.svg"
PAGES: Final = {
    "data-bound": "data",
    "copy-bound": "copy",
    "sync-bound": "sync",
    "overhead-bound": "overhead",
    "kernel-bound": "kernel",
    "comm-bound": "comm",
    "straggler-bound": "straggler",
    "memory-pressure": "memory",
    "inconclusive": "inconclusive",
}
"""The page of each verdict in docs/bottlenecks, which has the picture of that name."""
_WIDTH: Final = 960
_ROW: Final = 92


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def questions() -> list[tuple[str, str, str, str]]:
    """Each question in the order of the program: what is asked, of what, the answer that ends it, the verdict then."""
    from profkit.verdict import case
    from profkit.verdict.decide import LEAST_BESIDE

    both = f"{_percent(case.DOMINANT)} ({_percent(case.DOMINANT_ON_CPU)} on a CPU)"
    nearly = f"{_percent(case.NEARLY_ALL_WORK)} ({_percent(case.NEARLY_ALL_WORK_ON_CPU)} on a CPU)"
    unknown = _percent(case.UNEXPLAINED)
    healthy = f"{_percent(case.HEALTHY_WORK)} is compute, half of it matrix products, and no cause is left"
    return [
        ("Is the capture sound?", "lost launches, impossible times, a step alone", "no", "inconclusive"),
        (
            "Is it start-up?",
            f"algorithms tried from {_percent(case.DOMINANT)} of the window; or stalls from {unknown} that leave less than"
            f" {_percent(LEAST_BESIDE)}, or no work that repeats",
            "yes",
            "inconclusive",
        ),
        (
            "Is the idle time unexplained?",
            f"{unknown} of the window or more, and more than any cause",
            "yes",
            "inconclusive",
        ),
        (
            "Is one cause large, and the work not nearly all?",
            f"{both} of the window or more; compute below {nearly}",
            "yes",
            "that cause",
        ),
        (
            "Is most of the window compute?",
            f"{_percent(case.MOSTLY_WORK)} or more; healthy if {healthy}",
            "yes",
            "kernel-bound",
        ),
        ("Is there any cause?", "the largest, with less confidence", "yes", "that cause"),
        ("Nothing is large enough", "", "", "inconclusive"),
    ]


def drawn() -> str:
    """The questions as an SVG, from the top down."""
    asked = questions()
    height = _ROW * len(asked) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="The questions that profkit asks, in their order">',
        "<style>text { font-family: system-ui, sans-serif; font-size: 15px; fill: #1f2328; }"
        " .more { font-size: 12.5px; fill: #59636e; } .verdict { font-weight: 600; } .answer { font-size: 12.5px; }"
        " .ask { fill: #f6f8fa; stroke: #afb8c1; } .end { fill: #ddf4e4; stroke: #4ac26b; }"
        " .open { fill: #fff8c5; stroke: #d4a72c; } path { stroke: #59636e; fill: none; }</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff" rx="8"/>',
    ]
    for number, (question, of_what, answer, verdict) in enumerate(asked):
        top = 14 + _ROW * number
        parts += [
            f'<rect class="ask" x="20" y="{top}" width="610" height="58" rx="6"/>',
            f'<text x="36" y="{top + (25 if of_what else 35)}">{number + 1}. {escape(question)}</text>',
            f'<text class="more" x="36" y="{top + 45}">{escape(of_what)}</text>',
            f'<rect class="{"open" if verdict == "inconclusive" else "end"}" x="740" y="{top}" width="200" height="58" rx="6"/>',
            f'<text class="verdict" x="840" y="{top + 35}" text-anchor="middle">{escape(verdict)}</text>',
            f'<path d="M630 {top + 29} H738 m-7 -5 l7 5 l-7 5"/>',
            f'<text class="answer" x="684" y="{top + 22}" text-anchor="middle">{answer}</text>',
        ]
        if number + 1 < len(asked):
            other = "yes" if answer == "no" else "no"
            parts += [
                f'<path d="M325 {top + 58} V{top + _ROW - 2} m-5 -7 l5 7 l5 -7"/>',
                f'<text class="answer" x="335" y="{top + 80}">{other}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])


def write() -> Path:
    """Draw it into docs/pictures; gives its path."""
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(drawn(), encoding="utf-8")
    return PICTURE


def page() -> str:
    """The table of next tools: what each verdict's report tells to run, on the captures of the bottleneck pages."""
    from profkit.findings import KINDS
    from profkit.findings.capture import QUALITY
    from profkit.findings.kind import VERDICTS
    from profkit.model.documents.report import Bottleneck

    parts = [
        "# Which tool next",
        "This page is made from the program: questions and limits are its constants, commands are those that it prints.",
        "## How the verdict is found",
        "![the questions in their order, with the verdict each leads to](/pictures/decision.svg)",
        "Causes are ranked by what a fix saves at most, times how sure the finding is. What a check of the capture does to a"
        " verdict is on [](/method.md), where each limit comes from on [](/sources.md).",
        "## What the report tells you to run",
        "| verdict | findings that lead to it | its next tool, as on its page | what a change gives |\n|---|---|---|---|",
    ]
    rows = []
    for verdict, next_tool, measured in _next_tools():
        leading = [kind.id for kind in KINDS.values() if kind.bottleneck == verdict]
        if verdict == Bottleneck.KERNEL:
            leading = [kind.id for kind in KINDS.values() if kind.is_about_work]
        found = ", ".join(f"`{name}`" for name in leading or [QUALITY.id])
        rows.append(f"| [{verdict}](/bottlenecks/{PAGES[verdict]}.md) | {found} | {next_tool} | {measured} |")
    parts[-1] += "\n" + "\n".join(rows)
    parts += [
        "The order torch.profiler, nsys, ncu is the order of what evidence costs: operators and Python first, then the whole"
        " system's timeline, then one launch of one kernel. py-spy answers what Python does between operators.",
        "## What each verdict means",
        "\n".join(
            f"- **[{verdict}](/bottlenecks/{PAGES[verdict]}.md)**: {meaning}" for verdict, meaning in VERDICTS.items()
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _next_tools() -> Iterator[tuple[str, str, str]]:
    """Verdict, next tool and the command that measures, from a report on the capture of each page."""
    for verdict, name in PAGES.items():
        told = _verdict_of(name)
        if told.bottleneck != verdict:
            raise ValueError(f"the capture of docs/bottlenecks/{name}.md gives {told.bottleneck}")
        tool = told.next_tool
        measured = f"`{told.measure.text}`" if told.measure is not None else ""
        yield verdict, f"{tool.name}: {tool.purpose}<br>`{tool.command}`".replace("|", "\\|"), measured


def _verdict_of(name: str) -> Verdict:
    import profkit
    from bench.site import scenes, shots

    source = shots.SHOTS[name][1]
    with tempfile.TemporaryDirectory() as folder:
        is_scene = name in scenes.SCENES
        path = scenes.written(name, Path(folder) / source) if is_scene else REPO / source
        return profkit.triage(path).verdict
