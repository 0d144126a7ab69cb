"""The example notebook runs from its first cell to its last, and each cell shows what its comment says."""

import ast
import json
import re

import pytest

from tests.conftest import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def cells() -> list[str]:
    document = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]


def run(source: str, names: dict[str, object]) -> object:
    """Run a cell as a notebook does: the value of its last line, if that is an expression, is what it shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - our own cells
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307


def test_the_cells_run_in_order_and_show_what_they_say(monkeypatch, capsys):
    monkeypatch.chdir(NOTEBOOK.parent)
    names: dict[str, object] = {}
    shown = [run(cell, names) for cell in cells()]
    drawn = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    for part in ("DATA-BOUND", "INCONCLUSIVE", "IMPROVED", "STRAGGLER-BOUND"):
        assert any(part in html for html in drawn), part
    assert "input.starved 94% of the window" in capsys.readouterr().out
    (parts,) = (value for value in shown if isinstance(value, dict))
    assert max(parts, key=parts.__getitem__) == "idle_data"
    waits = next(value for value in shown if getattr(value, "name", "") == "duration_ns")
    assert waits.tolist() == pytest.approx([35.5] * 5, rel=0.05)


def test_the_notebook_has_ten_cells_without_outputs_or_places_of_a_machine():
    document = json.loads(NOTEBOOK.read_text())
    assert len(document["cells"]) == 10
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in document["cells"])
    assert not re.search(r"/(?:home|work|root|tmp|Users)/", NOTEBOOK.read_text())
    assert (document["nbformat"], NOTEBOOK.read_text()) == (4, json.dumps(document, indent=1) + "\n")
