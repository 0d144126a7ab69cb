"""`profkit compare` as a user meets it: output, exit codes, gates, hostile input."""

import gzip
import json
import subprocess
from pathlib import Path

import click
import jsonschema
import pytest

from profkit.cli.compare import command
from profkit.compare.captures.sides import read_side
from profkit.compare.comparison import compare
from profkit.compare.paths import compare_tables
from profkit.errors import ProfkitError, UsageError
from profkit.model.documents.comparison import FindingChange, Presence
from profkit.render.json import compare as compare_json
from profkit.render.markdown import compare as compare_markdown
from profkit.render.schema import schema
from profkit.render.terminal import compare as terminal
from profkit.render.words.compare import finding_sentences
from profkit.testing import span, to_json
from tests.calling import profkit
from tests.conftest import ROOT
from tests.golden import PAIRS, comparison_renderings

DATA = ROOT / "traces" / "data_cpu.pt.trace.json.gz"
WORKERS2 = ROOT / "traces" / "data_workers2_cpu.pt.trace.json.gz"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return profkit("compare", *arguments)


def call(*arguments: object) -> int:
    """The command in this process: its exit code, or the error that the command line turns into a line."""
    code: int = command.main(args=[*map(str, arguments)], standalone_mode=False)
    return code


def table(path: Path, *arms: tuple[str, list[float]]) -> Path:
    rows = [f"{arm},{value}" for arm, values in arms for value in values]
    path.write_text("arm,step_ms\n" + "\n".join(rows) + "\n")
    return path


def steps_file(path: Path, step_us: int, n: int = 4, **names: object) -> Path:
    """A small trace file: n steps of that length, an operator in each."""
    rows = [span(f"ProfilerStep#{k}", k * step_us * 1000, (k + 1) * step_us * 1000) for k in range(n)]
    rows += [span("aten::mm", k * step_us * 1000, k * step_us * 1000 + 50_000, cat="cpu_op") for k in range(n)]
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(gzip.compress(to_json(rows, **names)))
    return path


# ------------------------------------------------------------------------------------------------------------- output


@pytest.mark.parametrize("name", PAIRS)
def test_comparisons_are_as_reviewed(name):
    for path, text in comparison_renderings(name):
        assert text == path.read_text(encoding="utf-8"), f"{path.name} changed: review, then make golden"


def test_the_answer_is_the_first_line_and_one_run_is_not_judged():
    done = run(DATA, WORKERS2)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert done.returncode == 0
    assert done.stderr == ""
    assert "INCONCLUSIVE" in lines[0]
    assert "cannot rule out noise" in " ".join(done.stdout.split())
    assert "\x1b" not in done.stdout
    assert max(map(len, lines)) <= 80


def test_the_output_picks_its_format(tmp_path):
    out = tmp_path / "report.md"
    assert call(DATA, WORKERS2, "-o", out) == 0
    assert out.read_text().startswith("## profkit compare: inconclusive")


def test_minus_is_less_time_everywhere_in_a_report(tmp_path):
    """The same change was -30 % in the sentence and +30 % in the tables."""
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("gpus,step_ms\n" + "".join(f"{n},{10 + 0.1 * k}\n" for n in (1, 2) for k in range(3)))
    new.write_text("gpus,step_ms\n" + "".join(f"{n},{7 + 0.1 * k}\n" for n in (1, 2) for k in range(3)))
    comparison = compare_tables([str(old), str(new)])
    for text in (
        terminal.render(comparison, width=120, color=False, verbose=True),
        compare_markdown.render(comparison),
    ):
        assert "-29.7 %" in text
        assert "+29.7 %" not in text
        assert "+3" not in text


# --------------------------------------------------------------------------------------------------------------- gate


def test_the_gate_fires_beyond_the_noise_only(tmp_path, capsys):
    clear = table(tmp_path / "clear.csv", ("a", [10.1, 10.0, 10.2]), ("b", [11.1, 11.2, 11.0]))
    assert call(clear, "--fail-on-regression", "3%") == 1
    assert "regressed by 7." in capsys.readouterr().err
    assert call(clear, "--fail-on-regression", "10%") == 0
    noisy = table(tmp_path / "noisy.csv", ("a", [10.1, 9.0, 12.2]), ("b", [11.1, 13.2, 10.0]))
    assert call(noisy, "--fail-on-regression", "3%") == 0
    better = table(tmp_path / "better.csv", ("a", [11.1, 11.2, 11.0]), ("b", [10.1, 10.0, 10.2]))
    assert call(better, "--fail-on-regression", "3%") == 0


def test_two_runs_a_side_never_fail_the_gate_and_it_says_so(tmp_path, capsys):
    for n in (1, 2):
        few = table(tmp_path / "few.csv", ("a", [10.1, 10.2][:n]), ("b", [20.1, 20.3][:n]))
        assert call(few, "--fail-on-regression", "3%") == 0
        assert "cannot rule out noise" in capsys.readouterr().err


def test_enough_runs_without_an_interval_are_not_told_to_run_more(tmp_path, capsys):
    equal = table(tmp_path / "equal.csv", ("a", [10.0, 10.0, 10.0]), ("b", [11.0, 11.0, 11.0]))
    assert call(equal, "--fail-on-regression", "3%") == 0
    assert "no interval can be given: no spread" in capsys.readouterr().err


def test_two_tables_are_matched_by_configuration(tmp_path):
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("gpus,step_ms\n" + "".join(f"{n},{10 + 0.1 * k}\n" for n in (1, 2) for k in range(3)))
    new.write_text("gpus,step_ms\n" + "".join(f"{n},{10 * n + 0.1 * k}\n" for n in (1, 2) for k in range(3)))
    comparison = compare_tables([str(old), str(new)])
    assert [judged.answer for _, judged in comparison.configurations] == ["equivalent", "regressed"]
    assert comparison.judgement.answer == "regressed"
    jsonschema.Draft202012Validator(schema("compare")).validate(compare_json.comparison_to_dict(comparison))
    assert "2 GPUs" in terminal.render(comparison, width=80, color=False)
    assert call(old, new, "--fail-on-regression", "3%") == 1


# -------------------------------------------------------------------------------------------------------------- sides


def test_repeated_runs_are_judged(tmp_path):
    slow = [steps_file(tmp_path / f"a{k}.json.gz", 1000 + k) for k in range(4)]
    fast = [steps_file(tmp_path / f"b{k}.json.gz", 800 + k) for k in range(4)]
    call("--baseline", *slow, "--candidate", *fast, "-o", tmp_path / "out.json")
    judged = json.loads((tmp_path / "out.json").read_text())["judgement"]
    assert (judged["answer"], judged["n"]) == ("improved", [4, 4])
    assert judged["effect"] == pytest.approx(0.2, abs=0.005)


def test_a_capture_is_judged_by_its_unprofiled_steps(tmp_path):
    for name, unprofiled in (("a", 500_000), ("b", 400_000)):
        file = steps_file(tmp_path / name / "rank0.pt.trace.json.gz", 1000)
        ranks = [{"trace": file.name, "baseline": {"n": 2, "steps_ns": [unprofiled, unprofiled + 2]}}]
        (tmp_path / name / "capture.json").write_text(json.dumps({"schema": "profkit.capture/1", "ranks": ranks}))
    comparison = compare(*(read_side(name, [str(tmp_path / name)]) for name in ("a", "b")))
    assert (comparison.judgement.baseline_mean, comparison.judgement.candidate_mean) == (500_001, 400_001)
    assert comparison.waterfall.delta_ns == 0
    assert not any("profiler on" in caveat for caveat in comparison.caveats)


def ranked(folder: Path, step_us: int, *, unprofiled_ns: int = 0) -> Path:
    """A run of two ranks of 4 steps each, with unprofiled steps beside them where they are given."""
    files = [steps_file(folder / f"rank{rank}.pt.trace.json.gz", step_us, rank=rank) for rank in (0, 1)]
    if unprofiled_ns:
        steps = {"n": 2, "steps_ns": [unprofiled_ns, unprofiled_ns]}
        ranks = [{"trace": file.name, "baseline": steps} for file in files]
        (folder / "capture.json").write_text(json.dumps({"schema": "profkit.capture/1", "ranks": ranks}))
    return folder


def page(*paths: Path) -> str:
    """The comparison of two paths on one long line, and in markdown."""
    found = compare(
        *(read_side(name, [str(path)]) for name, path in zip(("baseline", "candidate"), paths, strict=True))
    )
    return " ".join((terminal.render(found, width=100, color=False) + compare_markdown.render(found)).split())


def test_ranks_are_no_further_captures_and_their_steps_no_further_steps(tmp_path):
    told = page(ranked(tmp_path / "before", 1000), ranked(tmp_path / "after", 1000))
    assert "what happened in these two captures" in told
    assert "1 run: 8 steps in 2 traces" in told
    assert "2 traces in before" in told
    assert "2 traces in after" in told


def test_the_first_line_says_whose_step_it_is_and_the_table_that_its_steps_are_profiled(tmp_path):
    sides = ranked(tmp_path / "a", 1000, unprofiled_ns=500_000), ranked(tmp_path / "b", 1000, unprofiled_ns=400_000)
    told = page(*sides)
    assert "unprofiled step: 500 -> 400 us/step" in told
    assert "what happened in these two captures, per profiled step (one run each)" in told
    assert "first line: the slowest rank's step; all else: means over ranks" in told


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    sides = [steps_file(tmp_path / side / "rank0.pt.trace.json.gz", 1000) for side in ("before", "after")]
    told = page(*sides)
    assert "before/rank0.pt.trace.json.gz" in told
    assert "after/rank0.pt.trace.json.gz" in told


def test_one_run_each_ends_with_the_command_that_repeats_them(tmp_path):
    slow, fast = (steps_file(tmp_path / f"{us}.json.gz", us) for us in (1000, 900))
    told = page(slow, fast)
    assert told.count("profkit bench -n 8 -- COMMAND_A --vs COMMAND_B") == 2  # terminal and markdown
    many = read_side("a", [str(steps_file(tmp_path / f"a{k}.json.gz", 1000 + k)) for k in range(4)])
    assert "profkit bench" not in terminal.render(compare(many, many))


def test_findings_of_one_presence_are_one_sentence():
    found = [
        FindingChange(id=name, title="", presence=presence, baseline_fraction=0.2, candidate_fraction=after)
        for name, presence, after in (
            ("a", Presence.BOTH, 0.1),
            ("b", Presence.VANISHED, None),
            ("c", Presence.BOTH, 0.2),
        )
    ]
    assert finding_sentences(found) == ["on both: a (20.0 % -> 10.0 %), c (20.0 % -> 20.0 %)", "gone: b (20.0 %)"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"ranks": 3}', '{"ranks": [1, {"trace": "rank0.pt.trace.json.gz"}]}', "[" * 9000]
)
def test_a_broken_manifest_is_no_manifest(tmp_path, text):
    steps_file(tmp_path / "a" / "rank0.pt.trace.json.gz", 1000)
    (tmp_path / "a" / "capture.json").write_text(text)
    side = read_side("a", [str(tmp_path / "a")])
    assert not side.runs[0].has_unprofiled


def test_the_steps_of_a_run_are_those_of_its_slowest_rank(tmp_path):
    for rank, step_us in ((0, 1000), (1, 1200)):
        steps_file(tmp_path / "ranks" / f"rank{rank}.json.gz", step_us, rank=rank)
    (run,) = read_side("a", [str(tmp_path / "ranks")]).runs
    assert run.steps_ns(is_unprofiled=False) == (1_200_000,) * 4


def test_what_cannot_be_read_beside_what_can_is_said(tmp_path):
    good = steps_file(tmp_path / "a.json.gz", 1000)
    (tmp_path / "bad.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [{"ph": "X", '))
    assert call("--baseline", good, tmp_path / "bad.json.gz", "--candidate", good, "-o", tmp_path / "out.json") == 0
    document = json.loads((tmp_path / "out.json").read_text())
    assert [failure["source"].endswith("bad.json.gz") for failure in document["failures"]] == [True]
    with pytest.raises(ProfkitError):
        read_side("a", [str(tmp_path / "bad.json.gz")])


# -------------------------------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "two sides are needed"),
        ((DATA,), "is one side"),
        ((DATA, DATA, DATA), "3 paths"),
        (("--baseline", DATA), "--candidate is missing"),
        (("--baseline", "--candidate", DATA), "--baseline is missing"),
        ((DATA, "--candidate", DATA), "is on neither side"),
        ((DATA, WORKERS2, "--metric", "step_ms"), "--metric"),
        ((DATA, WORKERS2, "--margin", "3"), "write 3%"),
        ((DATA, WORKERS2, "-f", "pdf"), "pdf"),
    ],
)
def test_usage_errors_say_what_to_do(arguments, said):
    with pytest.raises((UsageError, click.UsageError)) as refused:
        call(*arguments)
    assert said in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_missing_file_is_bad_input(tmp_path):
    with pytest.raises(ProfkitError) as refused:
        call(DATA, tmp_path / "nothing.json.gz")
    assert refused.value.exit_code == 3


def test_a_table_is_not_set_against_a_trace(tmp_path):
    file = table(tmp_path / "a.csv", ("a", [10.1]), ("b", [11.1]))
    with pytest.raises(UsageError, match="table and a trace"):
        call(file, DATA)


def test_a_table_of_many_arms_is_asked_about(tmp_path):
    file = table(tmp_path / "a.csv", ("a", [10.1]), ("b", [11.1]), ("c", [12.1]))
    with pytest.raises(UsageError, match="3 arms"):
        compare_tables([str(file)])


def test_the_schema_is_printed():
    printed = json.loads(profkit("schema", "compare").stdout)
    assert printed["properties"]["schema"]["const"] == compare_json.SCHEMA_ID
