"""Totals by name: against numpy, in a stretch of time, and as the command prints them."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.exceptions import BadParameter

from profkit.cli import group
from profkit.cli.shared.amounts import Stretch
from profkit.errors import UsageError
from profkit.ingest.read import read_traces
from profkit.timeline.totals import totals
from tests.ingest.nsys_files import RANK0, Export, global_tid, training

US = 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Four steps from 10 ms on with kernels of 109 us; 1 ms after the first event two waits of 10 and 40 us."""
    export = training()
    for start, length in ((11_000_000, 10), (11_500_000, 40)):
        row = {"globalTid": global_tid(RANK0), "nameId": export.string("poll")}
        export.add("OSRT_API", start=start, end=start + length * US, **row)
    return export.write(tmp_path / "x.sqlite")


def test_each_table_has_its_names(path: Path) -> None:
    (trace,) = read_traces(str(path))
    found = totals(trace)
    assert {table: {one.name: one.n for one in names} for table, names in found.items()} == {
        "kernels": {"gemm_0": 16, "gemm_1": 16},
        "calls": {"cudaLaunchKernel": 32},
        "waits": {"poll": 2},
        "ranges": {f"step {number}": 1 for number in range(7, 11)},
        "operators": {"aten::mm": 32},
    }
    (poll,) = found["waits"]
    assert (poll.total_ns, poll.mean_ns, poll.median_ns, poll.min_ns, poll.max_ns) == (
        *(50 * US, 25 * US, 25 * US),
        *(10 * US, 40 * US),
    )
    assert poll.stddev_ns == pytest.approx(np.std([10 * US, 40 * US], ddof=1))
    assert found["kernels"][0].share == 0.5
    assert found["ranges"][0].stddev_ns == 0.0


@pytest.mark.usefixtures("wide")
def test_ranges_that_differ_behind_a_bracket_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = training()
    for layer in (1, 2):
        export.range(20_000_000 * layer, 20_000_000 * layer + 1_000, f"FSDP::pre_forward (blocks.{layer})")
    group.main(["info", str(export.write(tmp_path / "x.sqlite")), "--stats"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "FSDP::pre_forward (blocks.1)" in shown
    assert "FSDP::pre_forward (blocks.2)" in shown


def test_as_numpy_has_it(tmp_path: Path) -> None:
    lengths = np.random.default_rng(7).integers(1, 10**6, 301)
    export = Export()
    for place, length in enumerate(lengths.tolist()):
        start = 10**7 + place * 2 * 10**6
        export.kernel(start, start + length, f"k{place % 4}")
    (trace,) = read_traces(str(export.write(tmp_path / "x.sqlite")))
    for one in totals(trace)["kernels"]:
        mine = lengths[int(one.name[1:]) :: 4]
        wanted = mine.size, mine.sum(), mine.mean(), np.median(mine), mine.min(), mine.max(), mine.std(ddof=1)
        told = one.n, one.total_ns, one.mean_ns, one.median_ns, one.min_ns, one.max_ns, one.stddev_ns
        assert told == pytest.approx(wanted)


def test_a_stretch_takes_what_begins_in_it(path: Path) -> None:
    (trace,) = read_traces(str(path))
    assert [one.n for one in totals(trace, (1_000_000, 1_500_000))["waits"]] == [1]
    assert [one.n for one in totals(trace, (1_000_000, 1_500_001))["waits"]] == [2]
    assert totals(trace, (10**9, 2 * 10**9)) == {}


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that has room for every column."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.usefixtures("wide")
def test_the_command_prints_and_writes_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group.main(["info", str(path), "--stats"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "calls of the operating system" in shown
    assert "25.0 us    25.0 us    10.0 us    40.0 us    21.2 us  poll" in shown
    group.main(["info", str(path), "--stats", "--between", "1ms:1.5ms", "-f", "json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert document["stats_between_ns"] == [1_000_000, 1_500_000]
    assert [one["n"] for one in document["stats"]["waits"]] == [1]
    group.main(["info", str(path), "--stats", "--between", "1s:2s"], standalone_mode=False)
    assert "nothing, begun 1.00 s to 2.00 s after the first event" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--between"):
        group.main(["info", str(path), "--between", "1s:2s"], standalone_mode=False)


@pytest.mark.parametrize(("text", "times"), [("0ns:1us", (0, 1000)), ("1.5ms:2s", (1_500_000, 2 * 10**9))])
def test_a_stretch_as_it_is_written(text: str, times: tuple[int, int]) -> None:
    assert Stretch().convert(text, None, None) == times


@pytest.mark.parametrize("text", ["", "1s", "1:2", "2s:1s", "1s:1s", "-1s:1s", "1s:2s:3s", "nan:1s"])
def test_what_is_no_stretch_is_refused(text: str) -> None:
    with pytest.raises(BadParameter):
        Stretch().convert(text, None, None)
