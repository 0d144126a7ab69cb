"""Fixtures that several test files use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from profkit.errors import RAISE

settings.register_profile("profkit", deadline=None)  # a busy machine is no failure: speed is `make bench`'s
settings.load_profile("profkit")

os.environ[RAISE] = "1"  # a fault is raised as it comes: what a user is spared must not be hidden from us

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
