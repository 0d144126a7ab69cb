"""What others leave beside a capture, and children that a script forks: nothing is mixed, followed or hung."""

from __future__ import annotations

import sys

import pytest

from tests.capture.running import SCRIPTS, capture, names, trace

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FORKS = str(SCRIPTS / "forks.py")
FORKS_OUT = """\
child exit 5
inside 1280
child raise
raise 256
child again
child exit 9
status 2304
again 2048
child end
end 0
parent
"""


def test_forked_children_end_as_they_would_have(tmp_path):
    """With torch.profiler alone a child that is forked after it and leaves by `exit` hangs for ever."""
    done = capture(tmp_path / "out", "timeout", "-s", "KILL", "60", sys.executable, FORKS)
    assert (done.code, done.out) == (0, FORKS_OUT), done.err
    assert done.err.count("RuntimeError: as a script may") == 1
    assert names(trace(tmp_path / "out"))[0] == "ProfilerStep#15"
