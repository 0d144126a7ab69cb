"""A fault of profkit's own: told with the file and the step, and no end of what others say. And ends of the program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.analyzers import ANALYZERS
from profkit.api import triage
from profkit.errors import RAISE, InternalError, TraceFormatError, UsageError, blamed, fault
from profkit.pipeline import FAULT_CAP, triage_trace
from profkit.ranks.align.membership import MOST_MISSING
from profkit.ranks.run import fleet_report as together
from profkit.render.json.triage import report_to_dict
from profkit.render.schema import schema
from profkit.testing import draw, kernel, launch, span, to_json
from tests.calling import profkit
from tests.conftest import ROOT

DATA = ROOT / "traces" / "data_cpu.pt.trace.json.gz"
RANKS = ROOT / "traces" / "ddp_comm_ws4"
PICTURE = """
steps  | 0.........1.........2.........
host   | OOO.LLL...OOO.LLL...OOO.LLL...
gpu s7 | ....KKKK......KKKK......KKKK..
"""


@pytest.fixture
def absorbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for a user: elsewhere in the tests faults are raised as they come."""
    monkeypatch.delenv(RAISE)


def run(*arguments: str, redirected: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name != RAISE}
    command = f"{sys.executable} -m profkit {' '.join(arguments)} {redirected}"
    return subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, cwd=ROOT, env={**own, **environment}
    )


def broken(*_: object, **__: object) -> None:
    raise KeyError("x\n\x1b[31my")


def breaking(monkeypatch: pytest.MonkeyPatch, name: str, part: str) -> None:
    from msgspec.structs import replace

    monkeypatch.setitem(ANALYZERS, name, replace(ANALYZERS[name], **{part: broken}))


@pytest.mark.parametrize("part", ["measure", "judge", "present"])
@pytest.mark.parametrize("name", [name for name in ANALYZERS if name != "quality"])
def test_an_analyzer_that_fails_costs_itself_alone(name, part, monkeypatch, absorbed):
    whole, _ = triage_trace(draw(PICTURE))
    breaking(monkeypatch, name, part)
    rank, verdict = triage_trace(draw(PICTURE))
    if not any(section.analyzer == name for section in whole.sections) and part != "measure":
        return  # it had nothing to say
    skip = next(skip for skip in rank.skipped if skip.analyzer == name)
    assert f"failed while analysing {name} (KeyError" in skip.reason
    assert "\n" not in skip.reason
    assert verdict.confidence <= FAULT_CAP
    assert any(f"analysing {name}" in caveat for caveat in verdict.caveats)


def test_tests_see_the_fault_itself(monkeypatch):
    breaking(monkeypatch, "streams", "measure")
    with pytest.raises(KeyError):
        triage_trace(draw(PICTURE))


def test_a_capture_that_was_not_checked_has_no_verdict(monkeypatch, absorbed):
    breaking(monkeypatch, "quality", "measure")
    with pytest.raises(InternalError, match="drawn: profkit itself failed while analysing quality"):
        triage_trace(draw(PICTURE))


def test_what_was_raised_on_purpose_stays_as_it_is(absorbed):
    with pytest.raises(TraceFormatError), blamed("reading it", "x"):
        raise TraceFormatError("x")


def test_the_joint_part_may_fail_and_each_rank_has_its_verdict(monkeypatch, absorbed):
    monkeypatch.setattr(together, "joined", broken)
    report = triage([str(RANKS)])
    assert len(report.ranks) == 4
    assert report.fleet.ranks == ()
    (failure,) = report.failures
    assert (failure.error, failure.source) == ("InternalError", "all ranks together")
    assert "failed while comparing the ranks (KeyError" in failure.message


def test_a_rank_that_fails_is_named_and_the_others_go_on(monkeypatch, absorbed):
    from profkit.ranks.reduce import outcome

    whole = outcome.summarise

    def once(facts, **options):
        return broken() if "rank2" in facts.trace.meta.source else whole(facts, **options)

    monkeypatch.setattr(outcome, "summarise", once)
    report = triage([str(RANKS)])
    (failure,) = report.failures
    assert failure.error == "InternalError"
    assert "rank2" in failure.message
    assert "failed while summing it up for the other ranks" in failure.message
    assert report.fleet.missing == (2,)


def bad_rank(folder: Path, name: str, *rows: str, **metadata: object) -> None:
    good = [kernel(f"k{n}", 1000 * n, 1000 * n + 500, correlation=n + 1) for n in range(20)]
    good += [launch(1000 * n - 100, 1000 * n, correlation=n + 1) for n in range(20)]
    good += [span("ProfilerStep#0", 0, 20_000)]
    document = json.loads(to_json(good, metadata=metadata))
    document["traceEvents"] += [json.loads(row) for row in rows]
    (folder / f"{name}.json").write_text(json.dumps(document))


FAR = '{"ph": "X", "cat": "kernel", "name": "far", "ts": %s, "dur": 1, "args": {"device": 0, "stream": 7}}'
WORLD = {"backend": "nccl", "world_size": 3}


@pytest.mark.parametrize(
    ("rows", "metadata"),
    [
        ((FAR % "-9e15", FAR % "9e15"), {}),
        ((), {"baseTimeNanoseconds": 10**30}),
        ((), {"baseTimeNanoseconds": -(10**30)}),
        ((), {"distributedInfo": {**WORLD, "rank": 10**30}}),
        ((), {"distributedInfo": {**WORLD, "rank": 2, "world_size": 2147483648}}),
        ((), {"distributedInfo": {**WORLD, "rank": 2, "world_size": 2**20}}),
    ],
)
def test_one_bad_rank_does_not_end_the_others(rows, metadata, tmp_path):
    for rank in range(2):
        bad_rank(tmp_path, f"rank{rank}", distributedInfo={**WORLD, "rank": rank})
    bad_rank(tmp_path, "bad", *rows, **{"distributedInfo": {**WORLD, "rank": 2}, **metadata})
    report = triage([str(tmp_path)])
    assert len(report.ranks) >= 2
    assert {0, 1} <= {rank.rank for rank in report.ranks}
    if rows:
        assert "bad.json" in report.failures[0].message


def test_a_huge_world_is_said_in_a_few_words(tmp_path):
    for rank in range(3):
        bad_rank(tmp_path, f"rank{rank}", distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2**20})
    report = triage([str(tmp_path)])
    assert (len(report.fleet.missing), report.fleet.n_missing) == (MOST_MISSING, 2**20 - 3)
    assert any("1,048,573 of 1,048,576 ranks are missing (3-1026" in caveat for caveat in report.verdict.caveats)
    document = report_to_dict(report)
    assert document["fleet"]["n_missing"] == 2**20 - 3
    import jsonschema

    jsonschema.validate(document, schema("triage"))


# ------------------------------------------------------------------------------------------------- ends of the program


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [("triage", str(DATA)), ("explain", "host.sync"), ("schema",)])
def test_a_full_disk_is_one_line(arguments):
    done = run(*arguments, redirected="> /dev/full")
    assert done.returncode == UsageError.exit_code
    assert "cannot write to standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("triage", str(DATA)), ("explain", "host.sync")])
def test_a_closed_standard_output_is_one_line(arguments):
    done = run(*arguments, redirected=">&-")
    assert done.returncode == UsageError.exit_code
    assert done.stderr.splitlines()[0] == "profkit: cannot write to standard output: it is closed"


def test_a_closed_standard_output_does_not_matter_to_a_file(tmp_path):
    done = run("triage", str(DATA), "-o", str(tmp_path / "report.md"), redirected=">&-")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.md").stat().st_size > 500
    assert run("triage", str(DATA), redirected="2>&-").returncode == 0


def test_an_output_that_cannot_be_written_is_one_line():
    done = run("triage", str(DATA), "-o", "/proc/profkit.md")
    assert done.returncode == UsageError.exit_code
    assert "cannot write /proc/profkit.md" in done.stderr


@pytest.mark.parametrize("text", ["{", '{"traceEvents": [1]}'])
def test_a_traceback_holds_no_escapes(text, tmp_path):
    path = tmp_path / "bad\x1b[31m\u202e.json"
    path.write_text(text)
    done = profkit("triage", path, "-v")
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert "\x1b" not in done.stderr
    assert "\u202e" not in done.stderr


def failing(said: str, *flags: str, first: str = "") -> str:
    """Give what a program whose triage fails with a KeyError writes to stderr."""
    code = (
        f"{first}\n"
        "import profkit.api, profkit.cli\n"
        f"def broken(*a, **k): raise KeyError({said!r})\n"
        "profkit.api.triage = broken\n"
        f"profkit.cli.main({['triage', str(DATA), *flags]!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 70
    return done.stderr


def test_a_bug_of_ours_is_a_line_and_exit_code_70():
    err = failing("x")
    assert err.startswith("profkit: profkit itself failed while running `profkit triage` (KeyError: 'x')")
    assert "Traceback" not in err


def test_a_fault_with_v_ends_with_its_line():
    err = failing("x\x1b[31m", "-v", first="import os; os.environ.pop('PROFKIT_RAISE', None)")
    assert "Traceback" in err
    assert "\x1b" not in err
    assert "profkit: profkit itself failed while running `profkit triage`" in err


@pytest.mark.parametrize("words", [["explain", "a"], ["triage", "--steps", "0:1"]])
def test_a_usage_error_holds_no_escapes_and_forges_no_line(words):
    bad = "b\x1b]52;c;eA==\x07\x9b2J\u202e\r\nprofkit: all is well"
    done = profkit(*words, bad)
    assert done.returncode in {2, 3}
    assert [char for char in done.stderr if not char.isprintable() and char != "\n"] == []
    assert "\nprofkit: all is well" not in done.stderr


def test_a_fault_shows_no_part_of_a_secret_that_its_end_would_cut():
    secret = "hf_" + "aB3" * 12
    told = fault(ValueError("x " * 90 + secret), "reading it", "t.json")
    assert secret[:6] not in told.message
