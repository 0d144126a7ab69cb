"""Lines keep to their width, whatever they hold."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from profkit.render.terminal import layout
from profkit.render.terminal.layout import Line

# What `text.clean` lets through: printable characters and plain spaces, wide ones among them.
TEXT = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]).filter(str.isprintable))
WIDTHS = st.integers(min_value=20, max_value=200)


def plain(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def width_of(text: str) -> int:
    return layout.cell_width(text)


@given(TEXT, WIDTHS)
def test_wrapping_keeps_to_the_width_and_loses_nothing(text: str, width: int) -> None:
    lines = plain(layout.wrapped("  label  ", text, width))
    assert all(width_of(line) <= width for line in lines)
    assert "".join(line[9:] for line in lines).replace(" ", "") == "".join(text.split())


@given(TEXT, st.integers(min_value=1, max_value=40))
def test_fitting_keeps_to_the_width(text: str, width: int) -> None:
    shown = layout.fitted(text, width)
    assert width_of(shown) <= width
    assert (shown == text) == (width_of(text) <= width)
    assert shown == text or "…" in shown


@given(st.lists(TEXT, max_size=8), WIDTHS)
def test_flowing_keeps_to_the_width(entries: list[str], width: int) -> None:
    lines = plain(layout.flowed(("  more  ", ""), [(entry, "") for entry in entries], width))
    assert all(width_of(line) <= width for line in lines)


@given(st.lists(st.tuples(TEXT, st.integers(), TEXT), max_size=5), st.integers(min_value=30, max_value=200))
def test_tables_keep_to_the_width(rows: list[tuple[str, int, str]], width: int) -> None:
    cells = [[first, f"{number % 1000}", last] for first, number, last in rows]
    lines = plain(layout.table(["name", "count", "family"], cells, [True, False, True], width))
    assert all(width_of(line) <= width for line in lines)
    assert len(lines) == len(rows) + 1


def test_tables_drop_columns_that_have_no_room_and_say_so() -> None:
    rows = [["aten::add", "1,234,567", "12.3 ms", "45.6 %"]]
    lines = plain(layout.table(["operator", "launches", "time", "share"], rows, [True, False, False, False], 30))
    assert lines == ["  operator   launches     time", "  ate…:add  1,234,567  12.3 ms", "  no room for: share"]


def test_names_are_cut_in_the_middle() -> None:
    name = "vectorized_elementwise_kernel<CUDAFunctor_add>"
    assert layout.fitted(name, 24) == "vectorized_…Functor_add>"
    assert layout.fitted(name, len(name)) == name


def test_a_long_name_is_broken_at_a_joint() -> None:
    lines = plain(layout.wrapped("", "batch_size_512.1733770537022695153.pt.trace.json.gz", 40))
    assert lines == ["batch_size_512.1733770537022695153.pt.", "trace.json.gz"]
    assert plain(layout.wrapped("", "a." + "b" * 30, 20)) == ["a." + "b" * 18, "b" * 12]


def test_a_number_keeps_its_unit() -> None:
    lines = plain(layout.wrapped("", "it takes 17.5 ms per step, 46.1 % of 5 steps", 20))
    assert lines == ["it takes 17.5 ms per", "step, 46.1 % of", "5 steps"]


def test_bars_fill_the_width_exactly() -> None:
    for width in range(10, 200):
        line = layout.bar([(491, "█", "a"), (42, "▓", "b"), (6, "▒", "c"), (461, "·", "d")], width)
        assert width_of(plain([line])[0]) == width - 2


@given(TEXT)
def test_widths_are_those_of_a_terminal(text: str) -> None:
    latin = "".join(char for char in text if ord(char) < 0x300 or 0x4E00 <= ord(char) <= 0x9FFF)
    assert layout.cell_width(latin) == cell_len(latin)


def test_what_is_pasted_is_never_cut() -> None:
    command = "profkit where /data/captures/a_name_that_is_far_longer_than_any_line/trace.json"
    entries = [("profkit explain x", layout.WHOLE), (command, layout.WHOLE), ("-v", ""), ("n" * 60, "")]
    lines = plain(layout.flowed(("  more  ", ""), entries, 40))
    assert lines == [
        "  more  profkit explain x",
        f"        {command}",
        "        -v",
        f"        {layout.fitted('n' * 60, 32)}",
    ]
