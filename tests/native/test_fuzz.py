"""The algebra beneath libFuzzer: some moments of what `make native-fuzz` does for longer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.ingest.native import fuzz


@pytest.mark.long(12)
@pytest.mark.skipif(not fuzz.clang(), reason="no clang with libFuzzer")
def test_the_sanitizers_and_the_plain_loops_have_nothing_against_it(tmp_path: Path) -> None:
    program = fuzz.program(tmp_path, fuzz.ALGEBRA)
    line = [str(program), "-runs=5000", "-max_len=300", "-seed=1"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
