"""The slow line of a script is the first place that a captured trace names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from profkit.api import triage
from tests.capture.running import SCRIPTS, capture, manifest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LINES = (SCRIPTS / "places.py").read_text().splitlines()


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if text in line)


@pytest.mark.parametrize(
    ("slow", "finding", "function", "text", "module"),
    [
        ("python", "host.launch_bound", "report", "", ""),
        ("dataset", "input.starved", "decode", "", ""),
        ("module", "host.launch_bound", "forward", "", "net.chatty"),
        ("reading", "host.launch_bound", "train", "loss.item()", ""),
    ],
)
def test_the_slow_line_comes_first(
    tmp_path: Path, slow: str, finding: str, function: str, text: str, module: str
) -> None:
    done = capture(tmp_path, sys.executable, str(SCRIPTS / "places.py"), slow, options=("--stacks",))
    assert done.code == 0, done.err
    report = triage(tmp_path / "rank0.pt.trace.json.gz")
    found = next(one for one in report.findings if one.id == finding)
    place = found.places[0].place
    assert (place.file.rpartition("/")[2], place.function, place.module) == ("places.py", function, module)
    if text:
        assert (place.line, place.text) == (line_of(text), LINES[line_of(text) - 1].strip())
    else:
        assert place.defined == line_of(f"def {function}(")
    assert all("lines" not in rank for rank in manifest(tmp_path)["ranks"])
