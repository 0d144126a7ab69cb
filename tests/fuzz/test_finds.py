"""What the fuzzer once found is not there any more: each find, minimised, in a folder of `finds/`.

A new one: `python -m tests.fuzz.finds --keep out/fuzz/KIND-ORACLE-HASH`, once it is small. None with planted secrets:
they look real to those who search for secrets, and `tests/test_secrets.py` has every form.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.fuzz.finds import ABOUT, HERE

PLACES = sorted(path.parent for path in HERE.glob(f"*/{ABOUT}"))


@pytest.fixture(scope="module")
def now() -> dict[str, list[str]]:
    """Faults by folder: all finds in one process, which is not this one, for they may take it with them."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.finds", *map(str, PLACES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=120,
    )
    assert done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("place", PLACES, ids=lambda path: path.name)
def test_it_is_mended(place: Path, now: dict[str, list[str]]) -> None:
    assert not now[str(place)], f"again: python -m tests.fuzz.finds {place.relative_to(ROOT)}"
