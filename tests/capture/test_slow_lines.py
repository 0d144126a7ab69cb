"""Training scripts as people write them, each with one slow line: a capture and its report name that line first."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from profkit.api import triage
from profkit.model.finding import Finding
from tests.capture.running import capture, line_of, manifest, run_forked
from tests.conftest import IN_FULL

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SLOW = Path(__file__).resolve().parent / "slow"
HOST = ("host.launch_bound", "host.stall")
CASES = {
    "plain_loop": (HOST, "<module>", ""),
    "trainer_class": (HOST, "update", ""),
    "callbacks": (HOST, "on_step_end", ""),
    "functional": (HOST, "smooth", ""),
    "compiled": (HOST, "median", ""),
    "hooks": (HOST, "on_train_batch_end", ""),
    "accumulate": (("input.starved",), "collate", ""),
    "own_gradient": (HOST, "backward", ""),
    "storm": (HOST, "forward", "encoder.layers.2.bias"),
}
"""By script: what its report may find first, and the function and the module of the slow line."""
CHEAP = ("own_gradient", "storm")
"""Those that `make test` tries."""


def first_of(findings: Sequence[Finding]) -> Finding:
    """The first finding about the script: a machine that runs other tests as well lets it wait for a core."""
    return next(one for one in findings if one.id not in ("host.contention", "host.cores_taken"))


def check_place(script: str, first: Finding) -> None:
    """The first place is the slow line, or where no call is made there the function around it."""
    finding, function, module = CASES[script]
    assert (script, first.id in finding) == (script, True), first.id
    place = first.places[0].place
    assert (script, place.short_file.endswith(f"{script}.py"), place.function) == (script, True, function)
    assert (script, place.line in (0, line_of("slow", SLOW / f"{script}.py"))) == (script, True), place.words
    assert (script, place.module) == (script, module)


@pytest.mark.long(9)
@pytest.mark.afresh  # on a busy machine a few waits for a core are long stalls, wherever they fall
@pytest.mark.sampled
def test_the_slow_line_is_the_first_place(tmp_path):
    scripts = list(CASES) if IN_FULL else list(CHEAP)
    ran = run_forked(tmp_path / "ran", [(str(SLOW / f"{script}.py"),) for script in scripts], out=tmp_path / "out")
    traces = {one["pid"]: one["trace"] for one in manifest(tmp_path / "out")["ranks"]}
    for script, done in zip(scripts, ran, strict=True):
        assert (script, done.code) == (script, 0), done.err
        check_place(script, first_of(triage([str(tmp_path / "out" / traces[done.pid])]).findings))


@pytest.mark.sampled
@pytest.mark.skipif(not IN_FULL, reason="half a minute: make full")
@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_of_loader_workers_the_slow_line_and_then_the_one_that_waits_are_named(how, tmp_path):
    done = capture(tmp_path / "out", sys.executable, str(SLOW / "workers.py"), how)
    assert done.code == 0, done.err
    first = first_of(triage(tmp_path / "out").findings)
    assert first.id == "input.starved"
    slow, waits = first.places[0], first.places[-1]
    line = line_of("slow", SLOW / "workers.py")
    assert (slow.place.function, slow.place.line, slow.of) == ("__getitem__", line, "workers")
    assert slow.share > 0.8
    assert (waits.place.function, waits.of) == ("main", "")
    assert "for images, labels in DataLoader(" in waits.place.text
    told = " ".join(one.statement for one in first.evidence)
    assert "they run Images.__getitem__() (workers.py:14), one of them takes" in told
    assert not list(Path(tempfile.gettempdir()).glob(f"*fetches*{manifest(tmp_path / 'out')['capture_id']}"))


@pytest.mark.sampled
@pytest.mark.skipif(not IN_FULL, reason="half a minute: make full")
@pytest.mark.parametrize(("slow", "rank", "function"), [("rank0", 0, "checkpoint"), ("straggler", 1, "lookup")])
def test_the_slow_line_of_one_rank_is_why_the_other_waits(slow, rank, function, tmp_path):
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = capture(tmp_path / "out", *torchrun, str(SLOW / "two_ranks.py"), slow)
    assert done.code == 0, done.err
    report = triage(tmp_path / "out")
    assert report.verdict.rank == rank
    first = next(one for one in report.verdict.findings if one.rank == rank)
    place = first.places[0].place
    assert (place.function, place.line) == (function, line_of(f"slow: {slow}", SLOW / "two_ranks.py"))
