"""`make golden`: write the golden reports again. Review the diff: it is what users will see change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from profkit.pipeline import triage
from profkit.render import json, markdown, terminal

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


def main() -> None:
    """Write every golden file."""
    GOLDENS.mkdir(exist_ok=True)
    for trace in TRACES:
        for path, text in renderings(trace):
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
