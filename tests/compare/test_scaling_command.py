"""`profkit scaling` as a user meets it."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from profkit.cli import group
from profkit.errors import TraceFormatError, UsageError
from profkit.testing import drawn_rows, to_json

TABLE = (
    "gpus,per_gpu_batch,tokens_per_s,peak_mem_gb\n1,8,100,10\n1,8,101,10\n1,8,99,10\n2,8,190,9\n2,8,191,9\n2,8,189,9\n"
)


def invoke(*arguments: object) -> Result:
    """Run the command line in this process; errors of ours come as exceptions."""
    return CliRunner().invoke(group, ["scaling", *map(str, arguments)], standalone_mode=False)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(TABLE)
    return path


def capture(folder: Path, picture: str, ranks: int) -> Path:
    """A run of so many ranks, each of which shows the same picture."""
    folder.mkdir()
    for rank in range(ranks):
        text = to_json(drawn_rows(picture), rank=rank)
        document = json.loads(text)
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": ranks}
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(document))
    return folder


def test_a_table_on_the_terminal(table: Path) -> None:
    done = invoke(table)
    assert done.exception is None
    assert done.output.strip().startswith("SCALING")
    assert "E = 0.95" in done.output
    assert "weak scaling at 8 per step and GPU" in " ".join(done.output.split())


def test_capacity_is_an_amount_of_memory(table: Path) -> None:
    assert invoke(table, "--capacity", "16 GiB").exception is None
    assert "not an amount of memory" in str(invoke(table, "--capacity", "much").exception)
    assert "not an amount of memory" in str(invoke(table, "--capacity", "0GB").exception)


def picture(step: str, n_steps: int = 6) -> str:
    """Steps that all look like this one on the device."""
    marks = "".join(str(number) + "." * (len(step) - 1) for number in range(n_steps))
    return f"steps | {marks}\ngpu s7 | {step * n_steps}"


def test_folders_of_traced_runs_and_where_the_efficiency_went(tmp_path: Path) -> None:
    one = capture(tmp_path / "one", picture("K" * 30 + "."), 1)
    two = capture(tmp_path / "two", picture("K" * 30 + "N" * 9 + "."), 2)
    done = invoke(one, two, "--held", "weak", "-f", "json")
    assert done.exception is None
    (series,) = json.loads(done.output)["series"]
    assert [point["gpus"] for point in series["points"]] == [1, 2]
    assert series["points"][1]["efficiency"] == pytest.approx(31 / 40)
    (account,) = series["decompositions"]
    assert sum(account["log_efficiency"].values()) == pytest.approx(math.log(31 / 40))
    assert min(account["log_efficiency"], key=account["log_efficiency"].get) == "comm_exposed"
    assert account["log_efficiency"]["work per compute second"] == pytest.approx(0)


@pytest.mark.parametrize(("call", "bearing"), [("A", "accuses"), (".", "clears")])
def test_the_allocator_of_a_traced_base_is_looked_at(tmp_path: Path, call: str, bearing: str) -> None:
    base = picture("K" * 20 + "." * 20) + "\nhost | " + ("." * 22 + call * 15 + "...") * 6
    slow = capture(tmp_path / "slow", base, 1)
    fast = capture(tmp_path / "fast", picture("K" * 14 + "."), 2)
    done = invoke(slow, fast, "-f", "json")
    assert done.exception is None
    (series,) = json.loads(done.output)["series"]
    assert series["standing"] == "accused"
    assert {clue["id"]: clue["bearing"] for clue in series["clues"]}["memory.allocator"] == bearing
    assert series["sentence"] == ""
    assert series["next_command"] == ""


def test_what_cannot_be_read_is_one_line(tmp_path: Path, table: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("gpus,tokens_per_s\n1,fast\n")
    assert isinstance(invoke(bad).exception, TraceFormatError)


def test_traces_beside_a_table_are_evidence(tmp_path: Path, table: Path) -> None:
    one = capture(tmp_path / "one", picture("K" * 30 + "."), 1)
    two = capture(tmp_path / "two", picture("K" * 30 + "N" * 2 + "."), 2)
    (series,) = json.loads(invoke(table, one, two, "-f", "json").output)["series"]
    assert [point["n"] for point in series["points"]] == [3, 3]
    assert len(series["decompositions"]) == 1
    both = tmp_path / "both.csv"
    both.write_text("gpus,mode,step_ms\n1,a,10\n2,a,11\n1,b,10\n2,b,11\n")
    done = invoke(both, one, two)
    assert isinstance(done.exception, UsageError)
    assert "which one is unknown" in done.exception.message


def test_more_gpus_that_do_less_have_no_serial_fraction(tmp_path):
    slower = tmp_path / "slower.csv"
    slower.write_text("gpus,per_gpu_batch,tokens_per_s\n1,8,100\n1,8,101\n2,8,90\n2,8,91\n")
    told = " ".join(invoke(slower).output.split())
    assert "> 1" in told
    assert "more GPUs do less, which no serial part explains" in told
