"""A page of a terminal is what rich would print of the same lines, character for character."""

from __future__ import annotations

import ast
import io
import shutil
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.errors import StyleSyntaxError
from rich.style import Style
from rich.text import Text

from profkit.render.terminal import page
from profkit.render.terminal.layout import Line
from tests.conftest import ROOT

RICH = {
    "bad": "bold white on red",
    "good": "bold white on green",
    "open": "bold black on yellow",
    "label": "bold",
    "strong": "bold",
    "command": "bold cyan",
}
CONTENTS = st.text(
    st.sampled_from("ab  [/]:\\·▒█漢é\u0301\x07\x08\x0b\x0c\r\x1b") | st.characters(categories=["L", "S"]), max_size=9
)
LINES = st.lists(st.tuples(CONTENTS, st.sampled_from(["", *page._CODES])), max_size=5).map(tuple)
BLOCKS = st.lists(st.lists(LINES, max_size=3), max_size=3)


def by_rich(blocks: list[list[Line]], *, is_colored: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=10_000,
        force_terminal=is_colored,
        force_jupyter=False,
        color_system="standard" if is_colored else None,
        no_color=not is_colored,
        legacy_windows=False,
    )
    for block in filter(None, blocks):
        console.print()
        for line in block:
            styled = Text.assemble(*((content, RICH.get(style, style)) for content, style in line))
            styled.rstrip()
            console.print(styled, soft_wrap=True, highlight=False)
    return out.getvalue()


@given(BLOCKS, st.booleans())
def test_a_page_is_what_rich_prints(blocks: list[list[Line]], is_colored: bool) -> None:
    assert page.printed(blocks, is_colored=is_colored) == by_rich(blocks, is_colored=is_colored)


@pytest.mark.parametrize("style", ["", *page._CODES])
def test_every_style_is_richs(style: str) -> None:
    blocks: list[list[Line]] = [[((" a ", style), ("b", ""), (" ", style))]]
    assert page.printed(blocks, is_colored=True) == by_rich(blocks, is_colored=True)


def test_no_style_is_named_that_is_not_known() -> None:
    for file in (ROOT / "profkit/render/terminal").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_style(node.value):
                assert node.value in page._CODES, file


def is_style(text: str) -> bool:
    """Whether rich knows a text as a style, which says something."""
    try:
        return len(text) > 2 and bool(Style.parse(text))  # "s" is a style of rich's, and many a plural
    except StyleSyntaxError:
        return False


@pytest.mark.parametrize("columns", [None, "", "many", "-7", "0", "30", "64", "300"])
def test_the_columns_are_those_of_the_standard_library(columns: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert page.columns_of(None) == max(shutil.get_terminal_size((80, 24)).columns, 40)
    monkeypatch.setattr(sys, "__stdout__", None)
    assert page.columns_of(None) == max(shutil.get_terminal_size((80, 24)).columns, 40)
    assert page.columns_of(57) == 57
