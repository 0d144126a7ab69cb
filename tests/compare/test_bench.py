"""Benchmarks: orders, looks, drift and tables on made-up runs; processes and the command on tiny real ones."""

import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from profkit.capture.inside.step_timer import StepTimer
from profkit.cli import group
from profkit.compare.bench import process
from profkit.compare.bench.interleaved import ARMS, Design, drift_of, measure, orders, report, samples, table
from profkit.compare.bench.process import Outcome, run_once
from profkit.compare.tables.result_tables import read_table
from profkit.errors import ProfkitError, UsageError
from profkit.model.documents.bench import BenchReport
from profkit.render.terminal import bench as rendering
from tests.conftest import ROOT

PYTHON = sys.executable
# A wobble without a trend, so that made-up runs have a spread.
WOBBLE = (0, 3, -2, 1, -3, 2, 0, -1, 2, -2, 3, -3, 1, -1, 0, 2)


def made_up(effect: float = 0.0, drift: float = 0.0):
    """A runner whose B takes longer by `effect`, on a machine that slows by `drift` at each run."""
    count = iter(range(1000))

    def run(arm: str) -> Outcome:
        number = next(count)
        slowed = (1 + drift) ** number * (1 + WOBBLE[number % len(WOBBLE)] / 1000)
        return Outcome(wall_ns=round(1e9 * slowed * (1 + effect * (arm == "B"))))

    return run


def found(run, design: Design, **options: object) -> BenchReport:
    result = report(measure(run, design), design, {"A": "one", "B": "two"}, **options)
    assert result is not None
    return result


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 8, 9])
def test_every_block_runs_both_arms_and_orders_balance(n_blocks: int) -> None:
    placed = orders(n_blocks, seed=5)
    assert placed[0] == ARMS
    assert len(placed) == n_blocks
    assert all(sorted(order) == list(ARMS) for order in placed)
    assert abs(Counter(order[0] for order in placed)["A"] - n_blocks / 2) <= 0.5


def test_the_order_is_drawn_from_the_seed() -> None:
    assert orders(40, seed=1) == orders(40, seed=1)
    assert len({tuple(orders(40, seed=seed)) for seed in range(5)}) == 5


def test_a_change_is_seen_through_a_drift_larger_than_itself() -> None:
    result = found(made_up(effect=0.02, drift=0.01), Design(n_blocks=8))
    assert result.answer == "regressed"
    assert result.effect == pytest.approx(-0.02, abs=0.005)
    assert result.drift.is_seen
    assert result.drift.fraction == pytest.approx(1.01**15 - 1, abs=0.02)


def test_a_drift_alone_is_no_change() -> None:
    result = found(made_up(drift=0.01), Design(n_blocks=8))
    assert result.answer in ("equivalent", "inconclusive")


def test_a_steady_machine_has_no_drift() -> None:
    assert not found(made_up(), Design(n_blocks=8)).drift.is_seen


def test_overwhelming_evidence_ends_early_at_a_level_that_says_so() -> None:
    result = found(made_up(effect=0.5), Design(n_blocks=12, stops_early=True))
    assert (result.n_blocks, result.n_planned) == (4, 12)
    assert result.answer == "regressed"
    assert result.level == pytest.approx(1 - 0.005 / 8)
    assert "99.9375 % interval" in result.sentence
    assert "4 of 12 blocks" in rendering.render(result, width=80)


def test_without_being_asked_nothing_ends_early() -> None:
    assert found(made_up(effect=0.5), Design(n_blocks=6)).n_blocks == 6


def test_a_half_block_is_left_out() -> None:
    trials = measure(made_up(), Design(n_blocks=3))[:5]
    pair = samples(trials, Design(n_blocks=3))
    assert [len(sample.values) for sample in pair] == [2, 2]
    assert samples(trials[:1], Design(n_blocks=3)) is None
    assert report(trials[:1], Design(n_blocks=3), {"A": "", "B": ""}) is None


def test_drift_needs_three_blocks() -> None:
    trials = measure(made_up(), Design(n_blocks=2))
    assert drift_of(trials, samples(trials, Design(n_blocks=2))) is None


def test_the_table_is_what_compare_reads(tmp_path: Path) -> None:
    trials = measure(made_up(effect=0.1), Design(n_blocks=4))
    path = tmp_path / "bench.csv"
    path.write_text(table(trials, {"A": "eager", "B": "compiled"}))
    runs = read_table(path)
    assert runs.metric.column == "wall_s"
    arms = runs.arms()
    assert list(arms) == ["eager", "compiled"]
    assert arms["eager"].blocks == (1, 2, 3, 4)
    assert arms["eager"].values == pytest.approx(samples(trials, Design(n_blocks=4))[0].values)


def test_the_noise_floor_says_what_blocks_would_see() -> None:
    result = found(made_up(), Design(n_blocks=8), is_same=True)
    counts = [count for _, count in result.blocks_for]
    assert counts == sorted(counts, reverse=True)
    shown = rendering.render(result, width=80)
    assert shown.strip().startswith("NOISE FLOOR")
    assert "runs vary by" in shown


# ---------------------------------------------------------------------------------------------------------- processes

STEPPING = (
    "import time\n"
    "from profkit.capture import step\n"
    "for _ in range(8):\n"
    "    begun = time.perf_counter()\n"
    "    while time.perf_counter() - begun < 0.002: pass\n"
    "    step(tokens=100)\n"
)


def test_a_run_is_timed_and_what_its_script_tells_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    outcome = run_once([PYTHON, "-c", STEPPING])
    assert outcome.step_ns >= 2e6
    assert outcome.tokens_per_s == pytest.approx(100 / outcome.step_ns * 1e9)
    assert outcome.wall_ns > 8 * 2e6
    assert outcome.samples_per_s is None


def test_what_a_script_counts_can_be_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    odd = STEPPING.replace("tokens=100", "tokens=float('nan'), samples='many'")
    outcome = run_once([PYTHON, "-c", odd])
    assert (outcome.tokens_per_s, outcome.samples_per_s) == (None, None)
    assert outcome.step_ns >= 2e6


TRAINING = """
import time
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
time.sleep(0.3)  # start-up is no step
for rows in torch.utils.data.DataLoader(torch.ones(60, 4), batch_size=2):
    begun = time.perf_counter()
    while time.perf_counter() - begun < 0.003: pass
    model(rows).sum().backward()
    optimizer.step()
print("rate 1\\nrate 2")
"""


@pytest.mark.long(5)
@pytest.mark.torch
def test_steps_are_found_as_a_capture_finds_them() -> None:
    pytest.importorskip("torch")
    outcome = run_once([PYTHON, "-c", TRAINING], metric=re.compile(r"rate (\d)"))
    assert outcome.step_source == "the optimizer's step"
    assert 3e6 <= outcome.step_ns < 50e6
    assert (outcome.metric, outcome.n_matches) == (2, 2)
    assert outcome.tokens_per_s is None


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome(wall_ns=9, metric=2.0, n_matches=3), "the last match of --metric-regex in a run's output, of 3"),
        (Outcome(wall_ns=9, step_ns=5.0, step_source="the optimizer's step"), "a step ends by the optimizer's step"),
        (Outcome(wall_ns=9, step_ns=5.0, tokens_per_s=7.0), "what the script counts with profkit.capture.step()"),
        (Outcome(wall_ns=9), "the wall time of the whole process, start-up included"),
    ],
)
def test_it_is_said_what_is_judged(outcome: Outcome, says: str) -> None:
    design = Design(n_blocks=4)
    result = report(measure(lambda _: outcome, design), design, {"A": "a", "B": "b"})
    assert says in result.judged_by
    assert "judged by" in rendering.render(result, width=100, color=False)


def test_a_script_that_tells_nothing_has_a_wall_time_alone() -> None:
    outcome = run_once([PYTHON, "-c", "pass"])
    assert (outcome.step_ns, outcome.tokens_per_s, outcome.metric) == (None, None, None)


def test_the_sitecustomize_that_ours_hides_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.seen = 42\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run_once([PYTHON, "-c", "print('seen', seen)"], metric=re.compile(r"seen (\d+)")).metric == 42


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import sys; sys.exit('out of memory')", "exit code 1: out of memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
        ("print('loss 3')", "has no match of"),
        ("print('rate fast')", "'fast' in the output, which is not a number"),
        ("print('rate -1')", "not a positive number"),
    ],
)
def test_a_run_that_fails_or_tells_no_metric_is_an_error(script: str, says: str) -> None:
    with pytest.raises(ProfkitError) as caught:
        run_once([PYTHON, "-c", script], metric=re.compile(r"rate (\S+)"))
    assert says in caught.value.message


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no program 'no-such-program'"):
        run_once(["no-such-program"])


def test_a_run_that_is_terminated_leaves_no_folder(tmp_path: Path) -> None:
    script = f"import os; os.kill(os.getppid(), {int(signal.SIGTERM)})"
    bench = (
        f"import sys; from profkit.compare.bench.process import run_once; run_once([sys.executable, '-c', {script!r}])"
    )
    done = subprocess.run([sys.executable, "-c", bench], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert done.returncode == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_ends_the_process_and_is_passed_on() -> None:
    script = f"import os, signal; os.kill(os.getppid(), {int(signal.SIGINT)}); signal.pause()"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell started us with &
    try:
        with pytest.raises(KeyboardInterrupt):
            run_once([PYTHON, "-c", script])
    finally:
        signal.signal(signal.SIGINT, before)


def test_of_a_long_output_the_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_MOST_OUTPUT_BYTES", 100)
    script = "print('tok/s: 1'); print('x' * 1000); print('tok/s: 2')"
    assert run_once([PYTHON, "-c", script], metric=re.compile(r"tok/s: (\d)")).metric == 2
    with pytest.raises(ProfkitError, match="has no match of"):
        run_once([PYTHON, "-c", "print('tok/s: 1'); print('x' * 1000)"], metric=re.compile(r"tok/s: (\d)"))


def test_all_that_a_run_writes_lies_in_a_folder_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    made = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **given: seen.append(Path(given["dir"])) or made(**given))
    run_once([PYTHON, "-c", "pass"])
    assert [(path.parent, path.name.startswith("profkit-bench-")) for path in seen] == [(tmp_path, True)]


# ---------------------------------------------------------------------------------------------------------- the command


def invoke(*arguments: object) -> Result:
    """Run the command line in this process; errors of ours come as exceptions."""
    return CliRunner().invoke(group, ["bench", *map(str, arguments)], standalone_mode=False)


def told(rate: int) -> str:
    """A command that tells a rate which wobbles by less than a percent: the answer does not hang on this machine."""
    return f"{PYTHON} -c \"import time; print('tok/s:', {rate} + time.time_ns() % 997 / 997 * {rate} / 200)\""


def test_two_commands_end_to_end(tmp_path: Path) -> None:
    path, pattern = tmp_path / "t.csv", r"tok/s: (?P<tokens_per_s>[0-9.]+)"
    options = ("-n", 3, "--warmup", 0, "--metric", pattern, "-o", path, "--names", "fast,slow")
    done = invoke(*options, "--", told(100), "--vs", told(50))
    assert done.exception is None
    assert "REGRESSED" in done.output
    assert "tokens/s" in done.output
    assert f"profkit compare {path}" in done.output
    runs = read_table(path)
    assert runs.metric.unit == "tokens/s"
    assert [row.arm for row in runs.rows[:4]] == ["fast", "slow", "slow", "fast"]
    assert read_table(path, metric="wall_s").metric.unit == "ns"
    compared = CliRunner().invoke(group, ["compare", str(path)], standalone_mode=False)
    assert "REGRESSED" in compared.output


def test_warm_up_runs_are_thrown_away(tmp_path: Path) -> None:
    path, log = tmp_path / "t.csv", tmp_path / "log"
    command = f"{PYTHON} -c \"open('{log}', 'a').write('x')\""
    assert invoke("-n", 2, "--warmup", 2, "-o", path, "--", command, "--vs", command).exception is None
    assert log.read_text() == "x" * 8
    assert len(read_table(path).rows) == 4


def test_one_command_against_itself(tmp_path: Path) -> None:
    done = invoke(
        "--aa", "-n", 2, "--margin", "3%", "--warmup", 0, "-o", tmp_path / "t.csv", "--", PYTHON, "-c", "pass"
    )
    assert done.exception is None
    assert "NOISE FLOOR" in done.output


def test_a_failing_command_says_what_was_kept(tmp_path: Path) -> None:
    path, flag = tmp_path / "t.csv", tmp_path / "ran"
    script = f"import pathlib, sys; p = pathlib.Path({str(flag)!r}); sys.exit('boom' if p.exists() else p.touch())"
    done = invoke("-n", 3, "--warmup", 0, "-o", path, "--", PYTHON, "-c", "pass", "--vs", PYTHON, "-c", script)
    assert isinstance(done.exception, ProfkitError)
    assert "exit code 1: boom" in done.exception.message
    assert f"2 runs kept in {path}" in done.stderr
    assert len(read_table(path).rows) == 2


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    run = made_up()
    count = iter(range(100))

    def stopping(command: list[str], *, metric: object = None) -> Outcome:
        if next(count) == 7:
            raise KeyboardInterrupt
        return run("A")

    monkeypatch.setattr(process, "run_once", stopping)
    done = invoke("-n", 9, "--warmup", 0, "-o", path, "--", "a", "--vs", "b")
    assert done.return_value == 130
    assert f"stopped; 7 runs kept in {path}" in done.stderr
    assert "3 of 9 blocks" in done.output
    assert len(read_table(path).rows) == 7


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no command to run"),
        (["--", "a"], "no --vs"),
        (["--", "a", "--vs", "b", "--vs", "c"], "--vs appears 2 times"),
        (["--", "a", "--vs"], "a command is missing"),
        (["--aa", "--", "a", "--vs", "b"], "--aa runs one command"),
        (["--names", "x,x", "--", "a", "--vs", "b"], "not two different names"),
        (["--names", "x,y\x1b", "--", "a", "--vs", "b"], "not two different names"),
        (["--metric", "(?P<arm>x)", "--", "a", "--vs", "b"], "already has as a column"),
        (["-o", "no/such/folder/t.csv", "--", "a", "--vs", "b"], "no folder no/such/folder"),
        (["--metric", "(", "--", "a", "--vs", "b"], "is not a regular expression"),
        (["--metric", "x", "--", "a", "--vs", "b"], "has 0 groups"),
        (["--lower", "--", "a", "--vs", "b"], "--lower needs --metric-regex"),
        (["--lower", "--metric", "(?P<tokens_per_s>x)", "--", "a", "--vs", "b"], "where higher is better"),
    ],
)
def test_usage_errors_in_one_line(arguments: list[str], says: str) -> None:
    done = invoke(*arguments)
    assert isinstance(done.exception, UsageError)
    assert says in done.exception.message


def test_a_table_is_never_overwritten_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "profkit-bench.csv"
    path.write_text("precious\n")
    monkeypatch.setattr(process, "run_once", lambda command, *, metric=None: Outcome(wall_ns=10**9))
    assert isinstance(invoke("-o", path, "--", "a", "--vs", "b").exception, UsageError)
    assert invoke("-n", 2, "--", "a", "--vs", "b").exception is None
    assert path.read_text() == "precious\n"
    assert math.isclose(read_table(tmp_path / "profkit-bench-2.csv").rows[0].value, 1e9)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_no_link_is_written_through(
    named: bool, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "run_once", lambda command, *, metric=None: Outcome(wall_ns=10**9))
    victim, link = tmp_path / "victim", tmp_path / "profkit-bench.csv"
    if is_there:
        victim.write_text("precious\n")
    link.symlink_to(victim)
    options = ("-n", 1, *(("-o", link) if named else ()))
    done = invoke(*options, "--", "a", "--vs", "b")
    assert isinstance(done.exception, UsageError) == named
    assert link.is_symlink()
    assert (tmp_path / "profkit-bench-2.csv").is_file() != named
    assert invoke(*options, "--overwrite", "-o", link, "--", "a", "--vs", "b").exception is None
    assert len(read_table(link).rows) == 2
    assert (victim.read_text() if is_there else victim.exists()) == ("precious\n" if is_there else False)


def test_a_command_that_ends_inside_a_quote_is_a_usage_error() -> None:
    done = invoke("--", "python 'a.py", "--vs", "python b.py")
    assert isinstance(done.exception, UsageError)
    assert "ends inside a quote" in done.exception.message


@pytest.mark.parametrize("fails", [False, True])
def test_a_timer_of_steps_that_failed_leaves_no_times(fails: bool, tmp_path: Path) -> None:
    timer = StepTimer(str(tmp_path))
    for _ in range(20):
        timer.data_wanted(None)
        timer.backward_began()
        timer.backward_ended()
        timer.optimizer_stepped(timer, has_closure=False)
    if fails:
        timer.fail(ValueError())
    timer.write()
    assert len([*tmp_path.iterdir()]) == int(not fails)
