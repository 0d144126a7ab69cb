"""A probe as markdown, for a pull request or an issue."""

from __future__ import annotations

from profkit.model.documents.probe import ProbeReport
from profkit.render.markdown.parts import escaped
from profkit.render.words import probe as words


def render(report: ProbeReport, **_: object) -> str:
    """The slopes as GitHub-flavoured markdown."""
    lines = [" | ".join(map(escaped, cells)) for cells in (words.HEADERS, *map(words.row, words.rows_of(report)))]
    rule = "|".join("---" if is_text else "---:" for is_text in words.IS_TEXT)
    said = [*map(words.sentence, words.told(report)), words.total(report), words.cost(report), words.untouched(report)]
    paragraphs = [
        "## profkit: probed",
        f"**{escaped(words.headline(report))}**",
        "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])]),
        "\n".join(f"- {escaped(text)}" for text in (*said, words.setting(report), *report.notes) if text),
        f"_{escaped(report.command)}_",
    ]
    return "\n\n".join(paragraphs) + "\n"
