"""The slow line of a script is the first place that a captured trace names."""

from pathlib import Path

import pytest

from profkit.api import triage
from tests.capture.running import SCRIPTS, manifest, run_forked, trace_path

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LINES = (SCRIPTS / "places.py").read_text().splitlines()


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if text in line)


CASES = [
    ("python", "host.launch_bound", "report", "", ""),
    ("dataset", "input.starved", "decode", "", ""),
    ("module", "host.launch_bound", "forward", "", "net.chatty"),
    ("reading", "host.launch_bound", "train", "loss.item()", ""),
]
"""What is slow; the finding, and of its first place the function, the text of the line and the module."""


@pytest.mark.long(8)
@pytest.mark.afresh  # in five steps a few waits for a core are much, wherever they fall
def test_the_slow_line_comes_first(tmp_path: Path) -> None:
    ran = run_forked(
        tmp_path / "ran", [("places.py", slow) for slow, *_ in CASES], out=tmp_path / "out", options=("--stacks",)
    )
    for (slow, finding, function, text, module), done in zip(CASES, ran, strict=True):
        assert (slow, done.code) == (slow, 0), done.err
        report = triage(trace_path(tmp_path / "out", done.pid))
        place = next(one for one in report.findings if one.id == finding).places[0].place
        named = (slow, place.file.rpartition("/")[2], place.function, place.module)
        assert named == (slow, "places.py", function, module)
        if text:
            assert (place.line, place.text) == (line_of(text), LINES[line_of(text) - 1].strip())
        else:
            assert place.defined == line_of(f"def {function}(")
    assert all("lines" not in rank for rank in manifest(tmp_path / "out")["ranks"])
