"""A page of a terminal: the same text with rich's styles and, for a pipe, without rich."""

import io
import re
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from profkit.render.terminal import page
from profkit.render.terminal.layout import Line
from tests.conftest import ROOT

CONTENTS = st.text(
    st.sampled_from("ab  [/]:\\·▒█漢é\u0301\x07\x08\x0b\x0c\r") | st.characters(categories=["L", "S"]), max_size=9
)
LINES = st.lists(st.tuples(CONTENTS, st.sampled_from(["", *page._STYLES])), max_size=5).map(tuple)
BLOCKS = st.lists(st.lists(LINES, max_size=3), max_size=3)


def by_rich(blocks: list[list[Line]]) -> str:
    """What rich prints where there are no colours."""
    out = io.StringIO()
    console = Console(file=out, width=10_000, color_system=None, force_jupyter=False, legacy_windows=False)
    for block in filter(None, blocks):
        console.print()
        for line in block:
            plain = Text("".join(content for content, _ in line))
            plain.rstrip()
            console.print(plain, soft_wrap=True, highlight=False)
    return out.getvalue()


@given(BLOCKS)
def test_without_colours_a_page_is_what_rich_prints(blocks: list[list[Line]]) -> None:
    assert page.printed(blocks, color=False) == by_rich(blocks)


@given(BLOCKS)
def test_colours_add_nothing_but_colours(blocks: list[list[Line]]) -> None:
    colored = page.printed(blocks, color=True)
    assert re.sub("\x1b\\[[0-9;]*m", "", colored) == page.printed(blocks, color=False)


def test_a_pipe_does_not_pay_for_rich() -> None:
    code = "from profkit.render.terminal.page import printed; printed([[((' a', 'dim'),)]], color=False)"
    script = f"import sys; {code}; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("columns", [None, "", "many", "-7", "0", "30", "64", "300"])
def test_the_columns_are_those_of_the_standard_library(columns: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert page.columns_of(None) == max(shutil.get_terminal_size((80, 24)).columns, 40)
    monkeypatch.setattr(sys, "__stdout__", None)
    assert page.columns_of(None) == max(shutil.get_terminal_size((80, 24)).columns, 40)
    assert page.columns_of(57) == 57
