"""`profkit where`: asked for a finding, a kernel, a module or nothing; and of a trace that cannot answer."""

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from profkit.cli import group
from profkit.errors import ProfkitError
from profkit.model.code import CodePlace, Phase, PlaceShare
from profkit.render.schema import schema
from profkit.render.words.places import place_words
from profkit.testing import Row, kernel, span, to_json
from tests.analyzers.test_input import SEEN
from tests.analyzers.test_places_of_findings import Job, backward, slow
from tests.ranks.jobs import edited, job_of, rank_file
from tests.ranks.test_causes import with_stacks


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(to_json(Job().steps(backward).rows))
    return path


def where(*words: object) -> Result:
    return CliRunner().invoke(group, ["where", *map(str, words)], standalone_mode=False)


def test_without_a_name_it_prints_findings_work_and_modules(trace: Path) -> None:
    text = where(trace).output
    assert "kernel.unfused" in text
    assert "forward() (net.py:6)" in text
    assert "all kernels and copies" in text
    assert "Linear[*]" in text


def test_one_finding_has_its_places(trace: Path) -> None:
    document = json.loads(where(trace, "kernel.unfused", "-f", "json").output)
    (subject,) = document["subjects"]
    assert (subject["kind"], subject["name"]) == ("finding", "kernel.unfused")
    first = subject["places"][0]
    assert (first["file"], first["function"], first["defined"], first["line"]) == ("net.py", "forward", 6, None)
    assert (first["module"], first["phase"]) == ("Linear[1]", "backward")


@pytest.mark.parametrize(
    ("asked", "kind", "name"),
    [
        ("Linear[1]", "module", "Linear[*]"),
        ("linear", "module", "Linear[*]"),
        ("elementwise", "kernel", "vectorized_elementwise_kernel"),
        ("aten::mul", "operator", "aten::mul"),
    ],
)
def test_kernels_operators_and_modules_are_found_by_a_part_of_their_names(
    trace: Path, asked: str, kind: str, name: str
) -> None:
    (subject,) = json.loads(where(trace, asked, "-f", "json").output)["subjects"]
    assert (subject["kind"], subject["name"]) == (kind, name)
    assert subject["places"]


def test_a_module_has_what_runs_inside_it_alone(trace: Path) -> None:
    (one,) = json.loads(where(trace, "Linear[1]", "-f", "json").output)["subjects"]
    (both,) = json.loads(where(trace, "Linear[*]", "-f", "json").output)["subjects"]
    assert 0 < one["ns"] < both["ns"]
    assert {place["module"] for place in one["places"]} == {"Linear[1]"}


@pytest.mark.parametrize(
    ("asked", "said"), [("gemn", "no finding, module"), ("host.sync", "the trace shows no host.sync")]
)
def test_what_is_not_there_is_said(trace: Path, asked: str, said: str) -> None:
    with pytest.raises(ProfkitError, match=said):
        raise_of(where(trace, asked))


def raise_of(result: Result) -> None:
    assert result.exception is not None
    raise result.exception


def test_a_trace_without_stacks_names_the_capture_that_has_them(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(to_json(Job(has_stacks=False).steps(slow).rows))
    with pytest.raises(ProfkitError, match="no Python stacks") as told:
        raise_of(where(path))
    assert told.value.hint is not None
    assert "profkit capture -- python" in told.value.hint


def test_the_hosts_time_is_written_for_flame_graphs(trace: Path, tmp_path: Path) -> None:
    assert where(trace, "-o", tmp_path / "x.collapsed").exit_code == 0
    lines = (tmp_path / "x.collapsed").read_text().splitlines()
    stacks = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}
    step = "train.py(99): <module>;train.py(10): step"
    assert stacks[f"{step};Linear;net.py(5): forward"] == 6 * 48
    assert sum(stacks.values()) == 6000
    assert where(trace, "-o", tmp_path / "x.speedscope.json").exit_code == 0
    document = json.loads((tmp_path / "x.speedscope.json").read_text())
    (profile,) = document["profiles"]
    assert sum(profile["weights"]) == profile["endValue"] == 6000 * 1000
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert {names[place] for stack in profile["samples"] for place in stack} == set(names)


def test_a_name_from_a_trace_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    bad = "\x1b[31m\u202e"
    rows: list[Row] = [
        span("ProfilerStep#0", 10**9, 2 * 10**9),
        span(f"train{bad}.py(1): f{bad}", 10**9, 2 * 10**9, cat="python_function"),
        span(f"nn.Module: A{bad}_0", 10**9, 2 * 10**9, cat="python_function"),
        Row(name="cudaLaunchKernel", cat="cuda_runtime", start_ns=10**9, end_ns=10**9 + 9, args={"correlation": 1}),
        kernel("k", 10**9 + 99, 19 * 10**8, correlation=1),
    ]
    path = tmp_path / "trace.json"
    path.write_bytes(to_json(rows))
    text = where(path).output
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_report_names_the_first_place_of_its_first_finding_and_where_to_find_more(trace: Path) -> None:
    text = CliRunner().invoke(group, ["triage", str(trace)], standalone_mode=False).output
    joined = " ".join(text.split())
    assert "% of this time is in forward() (net.py:6), in Linear[1] (in its backward pass)" in joined
    assert "profkit where" in joined
    document = CliRunner().invoke(group, ["triage", str(trace), "-f", "json"], standalone_mode=False).output
    assert json.loads(document)["verdict"]["where"] == "forward() (net.py:6), in Linear[1]"
    written = CliRunner().invoke(group, ["triage", str(trace), "-f", "markdown"], standalone_mode=False).output
    assert "forward() (net.py:6)" in written


def job_with_lines(folder: Path) -> Path:
    """Four ranks, of which the third waits 6 ms longer for its data in each step; all have frames."""
    job_of(folder, late_us={2: 6_000})
    for rank in range(4):
        edited(rank_file(folder, rank), with_stacks)
    return folder


def test_of_several_ranks_the_places_are_of_the_one_that_all_wait_for(tmp_path: Path) -> None:
    folder = job_with_lines(tmp_path)
    document = json.loads(where(folder, "-f", "json").output)
    jsonschema.Draft202012Validator(schema("where")).validate(document)
    assert (document["rank"], document["n_ranks"]) == (2, 4)
    assert document["source"].endswith("rank00002.json.gz")
    first = document["subjects"][0]
    assert first["name"] == "straggler.rank"
    assert first["places"][0]["where"] == "__getitem__() (data.py:20)"
    assert first["places"][0]["share_of"] == "input.starved"
    text = " ".join(where(folder).output.split())
    assert "rank 2 of 4 traces" in text
    assert "which waits for its DataLoader" in text
    assert "of that rank's input.starved time: __getitem__() (data.py:20)" in text
    (alone,) = json.loads(where(folder, "straggler.rank", "-f", "json").output)["subjects"]
    assert alone["places"] == first["places"]


def test_a_rank_can_be_asked_for(tmp_path: Path) -> None:
    folder = job_with_lines(tmp_path)
    document = json.loads(where(folder, "--rank", 1, "-f", "json").output)
    assert (document["rank"], document["chosen"]) == (1, "asked for")
    assert "straggler.rank" not in {one["name"] for one in document["subjects"]}
    with pytest.raises(ProfkitError, match="no trace is of rank 9") as told:
        raise_of(where(folder, "--rank", 9))
    assert told.value.hint == "there are ranks 0-3"
    with pytest.raises(ProfkitError, match="is of rank 2"):
        raise_of(where(rank_file(folder, 2), "--rank", 1))


def test_lines_of_loader_workers_need_no_stacks_of_the_training_process(tmp_path: Path) -> None:
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    rows: list[Row] = []
    for step in range(6):
        at = 10**9 + step * 10**6
        rows += [span(f"ProfilerStep#{step}", at, at + 10**6), span(loader, at, at + 6 * 10**5)]
        call = Row(name="cudaLaunchKernel", cat="cuda_runtime", start_ns=at + 610_000, end_ns=at + 620_000)
        rows += [
            replace(call, args={"correlation": step + 1}),
            kernel("k", at + 630_000, at + 10**6, correlation=step + 1),
        ]
    told = {"profkit_loaders": [{"n_workers": 2}], "profkit_worker_lines": SEEN}
    path = tmp_path / "trace.json"
    path.write_bytes(to_json(rows, metadata=told))
    (subject,) = json.loads(where(path, "-f", "json").output)["subjects"]
    assert subject["places"][0]["where"] == "app/data.py:17 in __getitem__(): image = decode(path)"
    assert {place["share_of"] for place in subject["places"]} == {"workers"}


def test_a_callback_that_the_optimizer_calls_is_not_called_the_optimizer():
    place = CodePlace(file="train.py", function="on_after_backward", line=79, text="q = np.percentile(g, 50)")
    share = PlaceShare(place=place, phase=Phase.OPTIMIZER, ns=1, share=1.0, count=1)
    assert place_words(share).endswith("(the optimizer)")
    assert place_words(replace(share, place=replace(place, beside="on_after_backward()"))).endswith("50)")
