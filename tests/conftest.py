"""Fixtures that several test files use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("profkit", deadline=None)  # a busy machine is no failure: speed is `make bench`'s
settings.load_profile("profkit")

ROOT = Path(__file__).resolve().parent.parent
SHARED_TRACES = ROOT.parent / "shared" / "data" / "kineto"


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


@pytest.fixture(scope="session", autouse=True)
def _no_key_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Captures made by tests are signed with a key of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield
