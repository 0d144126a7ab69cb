"""Names of documents, as the repository's files say them, become links of the site: `docs/cli.md` to that page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

REPO: Final = Path(__file__).resolve().parents[2]
_NAMED: Final = re.compile(r"(?<!\[)`(docs/[\w/]+\.md|SECURITY\.md|CONTRIBUTING\.md|CHANGELOG\.md)`")
_AT_ROOT: Final = {"SECURITY.md": "security.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages that hold a file of the repository's root."""
_FINDING: Final = re.compile(r"(?<!\[)`([a-z0-9]+\.[a-z0-9_]+)`")
_CHART: Final = re.compile(r"^```mermaid\n(?:flowchart|graph) \w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BOX: Final = re.compile(r'(\w+)(?:\["([^"]*)"\])?')
_FENCE: Final = re.compile(r"^\s*(```+|~~~+)")


def link(_: Any, name: str, source: list[str]) -> None:
    """Change the text of one page as it is read: `source` is a list of one string, as sphinx has it."""
    included = re.sub(
        r"^<!-- the page: (\S+) -->$",
        lambda found: (REPO / found[1]).read_text(encoding="utf-8").replace("](docs/", "](/"),
        source[0],
        flags=re.MULTILINE,
    )
    included = _CHART.sub(lambda found: chart_as_table(found[1]), included)
    source[0] = outside_code(
        included, lambda line: _with_findings(_NAMED.sub(lambda found: _linked(found[1], name), line))
    )


def _with_findings(line: str) -> str:
    """Ids of findings and of checks lead to what `profkit explain` prints of them."""
    from profkit.findings import KINDS
    from profkit.findings.capture import CHECKS

    known = KINDS.keys() | CHECKS.keys()
    return _FINDING.sub(lambda found: f"[{found[0]}](#{found[1]})" if found[1] in known else found[0], line)


def chart_as_table(chart: str) -> str:
    """A mermaid flowchart, which a page without scripts cannot draw, as a table of its boxes and what each leads to."""
    labels: dict[str, str] = {}
    leads: dict[str, list[str]] = {}
    for line in chart.splitlines():
        ends = [_BOX.fullmatch(end.strip()) for end in line.split("-->")]
        names = [end[1] for end in ends if end]
        labels |= {end[1]: end[2] for end in ends if end and end[2]}
        for name in names:
            leads.setdefault(name, [])
        if len(names) == 2:
            leads[names[0]].append(names[1])
    rows = [
        f"| **{name}** | {labels.get(name, name).removeprefix(name + ': ')} | {', '.join(below)} |"
        for name, below in leads.items()
        if name in labels
    ]
    return "\n".join(["| | what it is | leads to |", "|---|---|---|", *rows]) + "\n"


def _linked(path: str, page: str) -> str:
    target = _AT_ROOT.get(path) or path.removeprefix("docs/")
    return "this page" if target == f"{page}.md" else f"[](/{target})"


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with each line changed that stands in no fenced block."""
    lines, fence = [], ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence):
            fence = ""
        elif not fence:
            lines.append(change(line))
            continue
        lines.append(line)
    return "\n".join(lines)
