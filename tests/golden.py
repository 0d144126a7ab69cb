"""`make golden`: the golden reports and the numbers of docs/sources.md, written anew. Review the diff: users see it."""

import sys
from collections.abc import Iterator
from pathlib import Path

from profkit.api import triage
from profkit.compare.captures.sides import read_side
from profkit.compare.comparison import compare
from profkit.render.json import compare as compare_json
from profkit.render.json import triage as json
from profkit.render.markdown import compare as compare_markdown
from profkit.render.markdown import triage as markdown
from profkit.render.terminal import compare as compare_terminal
from profkit.render.terminal import triage as terminal
from tests.thresholds import SOURCES, as_is

ROOT = Path(__file__).resolve().parent.parent
GOLDENS = Path(__file__).resolve().parent / "goldens"
TRACES = sorted((ROOT / "traces").glob("*.json.gz"))
WIDTH = 80


def renderings(trace: Path) -> Iterator[tuple[Path, str]]:
    """Give (golden file, text) for one trace; the source is named relative to the repository."""
    report = triage([str(trace)])
    name = trace.name.removesuffix(".pt.trace.json.gz")
    texts = {
        "json": json.render(report),
        "md": markdown.render(report),
        "txt": terminal.render(report, width=WIDTH, color=False, verbose=True),
    }
    for suffix, text in texts.items():
        yield GOLDENS / f"{name}.{suffix}", text.replace(f"{ROOT}/", "")


PAIRS = {"data_workers2_cpu": ("data_cpu", "data_workers2_cpu")}
"""Golden comparisons: name, baseline and candidate among the traces."""


def comparison_renderings(name: str) -> Iterator[tuple[Path, str]]:
    """Give (golden file, text) for one pair of traces."""
    sides = [
        read_side(side, [str(ROOT / "traces" / f"{trace}.pt.trace.json.gz")])
        for side, trace in zip(("baseline", "candidate"), PAIRS[name], strict=True)
    ]
    comparison = compare(*sides)
    texts = {
        "json": compare_json.render(comparison),
        "md": compare_markdown.render(comparison),
        "txt": compare_terminal.render(comparison, width=WIDTH, color=False, verbose=True),
    }
    for suffix, text in texts.items():
        yield GOLDENS / "compare" / f"{name}.{suffix}", text.replace(f"{ROOT}/", "")


def main() -> None:
    """Write every golden file."""
    GOLDENS.mkdir(exist_ok=True)
    (GOLDENS / "compare").mkdir(exist_ok=True)
    groups = [*(renderings(trace) for trace in TRACES), *(comparison_renderings(name) for name in PAIRS)]
    SOURCES.write_text(as_is(SOURCES.read_text(encoding="utf-8")), encoding="utf-8")
    for path, text in (item for group in groups for item in group):
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
