"""What holds for every renderer: how it is found, what it loads, that no report breaks it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from profkit.errors import UsageError
from profkit.model.report import Report
from profkit.render import RENDERERS, renderer_for
from tests.conftest import ROOT
from tests.render.reports import ALL


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_every_renderer_prints_every_report(name: str, report: Report) -> None:
    text = renderer_for(name)(report)
    assert text.endswith("\n")
    assert not text.endswith("\n\n\n")
    assert "\x1b" not in text


@pytest.mark.parametrize(("name", "path"), [("json", "out/report.json"), ("markdown", "r.md"), ("terminal", "r.txt")])
def test_a_renderer_is_known_by_its_suffix(name: str, path: str) -> None:
    assert renderer_for(path) is renderer_for(name)


@pytest.mark.parametrize("name", ["html", "report.docx", "", "json5"])
def test_an_unknown_format_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="no format is known") as refused:
        renderer_for(name)
    assert refused.value.hint == "one of terminal, json, markdown"


@pytest.mark.parametrize(
    "code",
    [
        "import profkit.render",
        "import profkit.render.schema; profkit.render.schema.schema('triage')",
        "from profkit.render import renderer_for; renderer_for('json'); renderer_for('markdown')",
        "import profkit.render.terminal.report",
    ],
)
def test_rich_is_loaded_only_to_print_on_a_terminal(code: str) -> None:
    script = f"import sys; {code}; print('rich' in sys.modules, 'pandas' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False"] * 3
