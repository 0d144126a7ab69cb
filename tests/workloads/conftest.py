"""Fixtures of the workloads' tests."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.capture.running import ENVIRONMENT
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def same_threads_after() -> Iterator[None]:
    """Gives torch its threads back: workloads set their number in this process."""
    torch = sys.modules.get("torch")
    n_threads = torch.get_num_threads() if torch is not None else 0
    yield
    if torch is not None:
        torch.set_num_threads(n_threads)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Runs a workload on one rank in this process and gives the row it prints."""

    def run_here(workload: ModuleType, *flags: str) -> dict[str, Any]:
        assert workload.main(list(flags)) == 0
        (line,) = capsys.readouterr().out.splitlines()
        return json.loads(line)

    return run_here


@pytest.fixture
def on_two_ranks() -> Callable[..., str]:
    """Runs a workload through torchrun on gloo and gives what it prints."""

    def run_them(module: str, *flags: str) -> str:
        launch = ["--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", *launch, "-m", module, *flags],
            cwd=ROOT,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return run_them
