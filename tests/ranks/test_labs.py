"""Ground truth on many ranks: every case of the labs is told by its traces alone, and a healthy run blames nobody."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import profkit
from analyses.rank_runs import fingerprint
from profkit.ingest.kineto.reader import read_trace
from profkit.ranks.measure.stragglers import find_stragglers
from profkit.ranks.reduce.summary import summarise
from profkit.timeline import Facts
from tests.capture.running import ENVIRONMENT
from tests.conftest import IN_FULL, ROOT
from tests.ranks.simulate import measured
from workloads.rank_cases import CASES

HEALTHY = [case for case in CASES if case.n_ranks > 1 and case.study == "ddp" and case.category != "fault"]
N_REPEATS = 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_committed_captures_are_told_as_they_are(case, traces: Path):
    said = fingerprint(profkit.triage([str(traces / case.name)]))
    assert said.against(case) == "", said


@pytest.mark.parametrize(
    ("name", "top"),
    [("ddp_straggler_ws4", "straggler.rank"), ("ddp_barrier_ws4", "rank0.work"), ("ddp_comm_ws4", "collective.extra")],
)
def test_the_verdict_is_the_fault_that_was_built_in(name, top, traces: Path):
    """Whatever else the same job does on as few cores: of the barrier's case a quarter of the step is transfer."""
    assert profkit.triage([str(traces / name)]).verdict.findings[0].id == top


def analysed(folder: Path):
    summaries = [summarise(Facts.of(read_trace(str(path)))) for path in sorted(folder.glob("*.gz"))]
    return measured(summaries)[2], summaries


def resampled(waits, generator):
    """Give the waits of steps drawn with replacement; the copies of a step stay one block, for they are one witness.

    At least six different ones: with fewer, instances stand for themselves, and copies of these would pass for several.
    """
    steps = np.unique(waits.step[waits.step >= 0])
    drawn = generator.choice(steps, steps.size)
    while np.unique(drawn).size < 6:
        drawn = generator.choice(steps, steps.size)
    return waits.at(np.concatenate([np.flatnonzero(waits.step == step) for step in drawn]))


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_a_healthy_run_has_no_straggler_whichever_steps_are_looked_at(case, traces: Path):
    waits, summaries = analysed(traces / case.name)
    assert sum(answer.named != () for answer in find_stragglers(waits, summaries)) == 0
    generator = np.random.default_rng(0)
    blamed = [
        answer.named
        for _ in range(N_REPEATS)
        for answer in find_stragglers([resampled(group, generator) for group in waits], summaries)
    ]
    assert len(blamed) == N_REPEATS * len(waits)
    assert [named for named in blamed if named] == []


def test_the_straggler_is_the_only_one_named_whichever_steps_are_looked_at(traces: Path):
    waits, summaries = analysed(traces / "ddp_straggler_ws4")
    generator = np.random.default_rng(0)
    named = [
        [(one.rank, one.phase) for one in answer.named]
        for _ in range(N_REPEATS)
        for answer in find_stragglers([resampled(group, generator) for group in waits], summaries)
    ]
    assert all(ranks in ([], [(0, "data")]) for ranks in named)
    assert named.count([(0, "data")]) >= N_REPEATS // 3  # of eleven steps seven are left, which is little evidence


def captured_afresh(folder: Path, *flags: str):
    """Capture two ranks of the DDP lab; once more if gloo aborts at the end, as it does now and then."""
    launched = ["python", "-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    workload = [*launched, "--nproc-per-node=2", "-m", "workloads.ddp", "--steps=30", *flags]
    command = [sys.executable, "-m", "profkit", "capture", "-o", str(folder), "--overwrite", "--steps=12", "--"]
    environment = {**ENVIRONMENT, "PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"}
    for _ in range(3):
        done = subprocess.run(
            [*command, *workload], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode == 0:
            return fingerprint(profkit.triage([str(folder)]))
    pytest.fail(done.stderr[-2000:])


@pytest.mark.long(17)
@pytest.mark.afresh
@pytest.mark.torch
def test_a_straggler_captured_afresh_is_named(tmp_path: Path):
    pytest.importorskip("torch")
    said = captured_afresh(tmp_path, "--mode=straggler")
    assert said.stragglers == {0: "data"}, said
    assert said.bottleneck == "straggler-bound"


@pytest.mark.afresh
@pytest.mark.sampled
@pytest.mark.skipif(not IN_FULL, reason="takes a quarter of a minute: make afresh, make full")
@pytest.mark.torch
def test_healthy_ranks_captured_afresh_are_not_blamed(tmp_path: Path):
    pytest.importorskip("torch")
    said = captured_afresh(tmp_path)
    assert said.stragglers == {}, said
    assert not {"rank0.work", "collective.extra"} & set(said.findings)
