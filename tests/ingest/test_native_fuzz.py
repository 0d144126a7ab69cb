"""The corpus of `make native-fuzz`: read to the same bits in both ways, and by the program where there is clang."""

import subprocess
import sys
from pathlib import Path

import pytest

from profkit.ingest.kineto import scanner
from tests.conftest import ROOT
from tests.ingest.both_ways import decoded_both_ways, needs_library
from tests.ingest.native import fuzz

CORPUS = sorted(fuzz.CORPUS.iterdir())


def test_the_corpus_is_small() -> None:
    assert 10 < len(CORPUS) <= fuzz.MOST_FILES
    assert sum(path.stat().st_size for path in CORPUS) <= fuzz.MOST_BYTES_IN_ALL


@needs_library
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_the_corpus_is_read_to_the_same_bits(path: Path) -> None:
    for unique_keys in (False, True):
        by_scanner, plain = decoded_both_ways(path.read_bytes(), unique_keys=unique_keys)
        assert by_scanner == plain


@needs_library
def test_of_the_corpus_some_arrays_are_taken_and_others_left_for_many_reasons() -> None:
    found = {scanner.REASONS[scanner.scanned(path.read_bytes(), unique_keys=True)[1]] for path in CORPUS}
    assert "taken" in found
    assert len(found) >= len(scanner.REASONS) // 2


@pytest.mark.long(9)
@pytest.mark.skipif(not fuzz.clang(), reason="no clang with libFuzzer")
def test_the_sanitizers_have_nothing_against_the_corpus(tmp_path: Path) -> None:
    program = fuzz.program(tmp_path)
    line = [str(program), "-runs=0", str(fuzz.CORPUS)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]


def test_without_clang_it_is_said_that_nothing_was_run(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "tests.ingest.native.fuzz", "5"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT, env={"PATH": str(tmp_path)})
    assert done.returncode == 0
    assert "nothing was run" in done.stdout
