"""Fixtures that several test files use."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import Phase, is_hypothesis_test, settings

from profkit.errors import RAISE

sys.modules.setdefault("rfc3987_syntax", None)  # jsonschema loads its grammar for 3 s, for a format that no schema has

IN_FULL = bool(os.environ.get("PROFKIT_IN_FULL"))
"""Whether a test marked `sampled` tries all its cases (`make full`) rather than the cheap ones (`make test`)."""


def dear(*values: object) -> ParameterSet:
    """A case that takes long, beside others that try the same: for `make full` alone."""
    marks = (pytest.mark.sampled, pytest.mark.skipif(not IN_FULL, reason="takes long: make full"))
    return pytest.param(*values, marks=marks)


def examples(in_full: int) -> int:
    """How many examples hypothesis draws: all in `make full` and `make mutants`, a quarter of them in `make test`.

    Each run draws others.
    """
    return in_full if IN_FULL or "PROFKIT_HYPOTHESIS" in os.environ else max(in_full // 4, 5)


settings.register_profile(  # a busy machine is no failure: speed is `make bench`'s
    "profkit", deadline=None, max_examples=examples(100)
)
settings.register_profile(  # of a wrong program one needs to know that it is wrong, each time alike
    "mutants", deadline=None, database=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("PROFKIT_HYPOTHESIS", "profkit"))

os.environ[RAISE] = "1"  # a fault is raised as it comes: what a user is spared must not be hidden from us

ROOT = Path(__file__).resolve().parent.parent
SHARED_TRACES = ROOT.parent / "shared" / "data" / "kineto"


CAPTURES_AFRESH = 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test whose examples hypothesis draws is `sampled`: `make test` draws fewer."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("sampled")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """A test marked `afresh` is repeated, each time in a folder of its own, before it is red.

    What else runs on the machine may make a healthy rank late, and then it is late.
    """
    if pyfuncitem.get_closest_marker("afresh") is None:
        return None
    folder: Path = pyfuncitem.funcargs["tmp_path"]
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for attempt in range(1, CAPTURES_AFRESH + 1):
        (folder / str(attempt)).mkdir()
        try:
            pyfuncitem.obj(**given | {"tmp_path": folder / str(attempt)})
        except AssertionError:
            if attempt == CAPTURES_AFRESH:
                raise
        else:
            break
    return True


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's caches and key are in a folder of the tests', for this process and those that it starts."""
    folder = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where temporary folders are made, for this process and those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def traces() -> Path:
    """The project's own captured traces."""
    return ROOT / "traces"


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """Real traces beside the repository, where there are any; skips the test where not."""
    if not SHARED_TRACES.is_dir():
        pytest.skip("no real traces beside this checkout")
    return SHARED_TRACES


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """What runs in the background of a shell ignores SIGINT, and so do the processes that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
