"""Fixtures that several test files use."""

import itertools
import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import Phase, is_hypothesis_test, settings

from profkit.errors import RAISE

sys.modules.setdefault("rfc3987_syntax", None)  # jsonschema loads its grammar for 3 s, for a format that no schema has

IN_FULL = bool(os.environ.get("PROFKIT_IN_FULL"))
"""Whether a test marked `sampled` tries all its cases (`make full`) rather than the cheap ones (`make test`)."""
LONG_S = float(os.environ.get("PROFKIT_LONG_S", "0"))
"""Seconds of work that the drawn tests among those marked `long` take together (`make long`)."""
HANGS_S = 1500 if IN_FULL else 150
"""A test that runs longer is red: without it, one that waits for ever takes the results of all others with it."""


def dear(*values: object) -> ParameterSet:
    """A case that takes long, beside others that try the same: for `make full` alone."""
    marks = (pytest.mark.sampled, pytest.mark.skipif(not IN_FULL, reason="takes long: make full"))
    return pytest.param(*values, marks=marks)


def rarely(seconds: float, *values: object) -> ParameterSet:
    """A case that takes so many seconds, beside others that try much the same: `long`."""
    return pytest.param(*values, marks=pytest.mark.long(seconds))


def every(nth: int, cases: Iterable[object], seconds: float) -> list[object]:
    """Each nth of the cases, from the first on; the others, which take so many seconds each, are `long`."""
    return [case if n % nth == 0 else rarely(seconds, case) for n, case in enumerate(cases)]


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


class HangsError(BaseException):
    """A test runs too long. No `Exception`: what it tests may catch those."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test whose examples hypothesis draws is `sampled`: `make test` draws fewer. Of `long` ones few run, or none."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("sampled")
    long_ones = [item for item in items if item.get_closest_marker("long")]
    drawn = set() if IN_FULL else _drawn(long_ones)
    for item in long_ones:
        item.add_marker("sampled")
        if not IN_FULL and item.nodeid not in drawn:
            item.add_marker(pytest.mark.skip(reason="takes long: make long runs some, make full all"))


def _drawn(items: list[pytest.Item]) -> set[str]:
    """Names of tests that take `LONG_S` together; processes of one run draw the same."""
    order = sorted(item.nodeid for item in items)
    cost_s = {item.nodeid: float(item.get_closest_marker("long").args[0]) for item in items}
    random.Random(os.environ.get("PROFKIT_LONG_SEED", "")).shuffle(order)  # noqa: S311 - no secret
    spent_s = list(itertools.accumulate(cost_s[name] for name in order))
    return {name for name, until_s in zip(order, spent_s, strict=True) if until_s <= LONG_S}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that hangs is red, with the line at which it hung."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        return (yield)

    def hangs(_number: int, _frame: object) -> None:
        raise HangsError(f"{item.nodeid} runs longer than {HANGS_S} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, HANGS_S, 10)  # again: the first may be swallowed
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
