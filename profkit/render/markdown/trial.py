"""Trials as markdown, for a pull request or an issue."""

from __future__ import annotations

from profkit.model.documents.trial import TrialReport
from profkit.render.markdown.parts import escaped
from profkit.render.words import trial as words


def render(report: TrialReport, **_: object) -> str:
    """The trials as GitHub-flavoured markdown."""
    lines = [" | ".join(map(escaped, cells)) for cells in (words.HEADERS, *map(words.row, report.trials))]
    rule = "|".join("---" if is_text else "---:" for is_text in words.IS_TEXT)
    said = [*map(words.sentence, report.trials), *(f"{label}: {text}" for label, text in words.around(report))]
    paragraphs = [
        "## profkit: tried",
        f"**{escaped(words.headline(report))}**",
        "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])]),
        "\n".join(f"- {escaped(text)}" for text in said),
        f"_{escaped(report.command)}_",
    ]
    return "\n\n".join(paragraphs) + "\n"
