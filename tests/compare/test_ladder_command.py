"""`profkit ladder` as a user meets it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import profkit
from profkit.cli import group
from profkit.errors import TraceError, TraceFormatError, UsageError

TABLE = """rung,stage,batch,real_tokens_per_sec,peak_mem_gb,pad_pct
base,1,2,100,4,40
fused,1,2,150,5,40
packed,1,2,200,5,0
base,2,2,100,4,40
fused,2,2,60,3,40
packed,2,2,180,5,0
"""


def invoke(*arguments: object) -> Result:
    """Run the command line in this process; errors of ours come as exceptions."""
    return CliRunner().invoke(group, ["ladder", *map(str, arguments)], standalone_mode=False)


@pytest.fixture(name="table")
def _table(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(TABLE)
    return path


def test_a_table_on_the_terminal(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = invoke(table)
    assert done.exception is None
    text = " ".join(done.output.split())
    assert text.startswith("ONE RUN EACH stage 1 2.00x in 2 steps: base to packed")
    assert "base -> fused: gains 1.50x (stage 1); loses 0.60x (stage 2)" in text
    assert "the table does not tell whether one adds to those before or takes their place" in text
    assert "not on the ladder, since no faster than base: fused 0.60x" in text
    assert [line for line in done.output.splitlines() if len(line) > 80] == []
    assert len(invoke(table, "-v").output) > len(done.output)


def test_json(table: Path) -> None:
    document = json.loads(invoke(table, "-f", "json").output)
    assert [ladder["total"] for ladder in document["ladders"]] == [2.0, 1.8]
    assert document["ladders"][0]["rungs"][1]["over_before"]["interval"] is None


def test_every_format_by_the_suffix_of_the_output(table: Path, tmp_path: Path) -> None:
    formats = {".md": "##profkit:onerun", ".json": '{"schema"', ".txt": "ONERUNEACHstage1", ".html": "<!doctype"}
    for suffix, begins in formats.items():
        path = tmp_path / f"report{suffix}"
        assert invoke(table, "-o", path).exception is None
        assert "".join(path.read_text().split()).lower().startswith(begins.lower())
    assert path.read_text().count('<figure class="curve">') == 4


def test_the_order_can_be_given(table: Path) -> None:
    document = json.loads(invoke(table, "--order", "base,fused|packed", "-f", "json").output)
    assert document["order_source"] == "given"
    assert [rung["cell"]["rung"] for rung in document["ladders"][0]["rungs"]] == ["base", "packed"]
    done = invoke(table, "--order", "base,packt")
    assert isinstance(done.exception, UsageError)
    assert done.exception.hint == "did you mean 'packed'?"


def test_series_can_be_one(table: Path) -> None:
    document = json.loads(invoke(table, "--series", "", "-f", "json").output)
    assert [ladder["name"] for ladder in document["ladders"]] == ["all runs"]


@pytest.mark.parametrize("text", ["", "rung\n", "\x00", "rung,tokens_per_sec\n", "[1, 2]", "{"])
def test_what_is_no_table_is_one_line(text: str, tmp_path: Path) -> None:
    for suffix in (".csv", ".json"):
        path = tmp_path / f"runs{suffix}"
        path.write_text(text)
        refused = invoke(path).exception
        assert isinstance(refused, TraceFormatError)
        assert "\n" not in refused.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert isinstance(invoke(tmp_path / "none.csv").exception, TraceError)


def test_json_tables_are_read_as_csv_is(tmp_path: Path, table: Path) -> None:
    names, *lines = (line.split(",") for line in TABLE.split())
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"runs": [dict(zip(names, cells, strict=True)) for cells in lines]}))
    first, second = (json.loads(invoke(one, "-f", "json").output) for one in (table, path))
    assert first | {"source": ""} == second | {"source": ""}


def test_the_library_and_a_notebook(table: Path) -> None:
    report = profkit.ladder(table, order="base,fused,packed")
    assert repr(report) == "<LadderReport: stage 1: 2.00x; stage 2: 1.80x>"
    assert "2.00x in 2 steps" in report._repr_html_()


def test_names_of_a_table_stay_text_in_a_notebook_and_on_a_page(tmp_path: Path) -> None:
    path, page = tmp_path / "runs.csv", tmp_path / "page.html"
    path.write_text(TABLE.replace("packed", "<script>alert(1)</script>").replace("fused", "<img src=x onerror=y>"))
    invoke(path, "-o", page)
    for html in (profkit.ladder(path)._repr_html_(), page.read_text()):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
        assert "<script>alert" not in html
        assert "<img" not in html
