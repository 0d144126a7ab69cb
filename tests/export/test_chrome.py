"""`profkit export -o x.json`: the events as they were, profkit's rows beside them, a file that profkit reads alike."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import profkit
from profkit.cli import group
from profkit.errors import ProfkitError, TruncatedTraceError, UsageError
from profkit.export.document import shifted
from profkit.testing import Row, kernel, launch, span, to_json
from tests.conftest import rarely

OWN = "profkit_track"


def export(*words: object) -> Result:
    result = CliRunner().invoke(group, ["export", *map(str, words)], standalone_mode=False)
    if isinstance(result.exception, ProfkitError):
        raise result.exception
    assert result.exception is None, result.exception
    return result


def read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def of_trace(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event.get("cat") != OWN]


def of_profkit(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event.get("cat") == OWN]


def told(path: Path) -> tuple[object, ...]:
    """What a report says, but for the names of files."""
    report = profkit.triage(path)
    verdict = report.verdict
    findings = [(one.id, one.severity, one.fraction, one.title, one.rank) for one in report.findings]
    return verdict.bottleneck, verdict.headline, verdict.step_ns, verdict.confidence, verdict.caveats, findings


@pytest.mark.parametrize("name", ["baseline_cpu", "data_cpu", "data_workers2_cpu", "kernel_cpu", "overhead_cpu"])
def test_an_export_has_every_event_as_it_was_and_the_same_report(traces: Path, tmp_path: Path, name: str) -> None:
    source = traces / f"{name}.pt.trace.json.gz"
    out = tmp_path / "out.json.gz"
    export(source, "-o", out)
    document, original = read(out), read(source)
    assert of_trace(document) == original["traceEvents"]
    assert document["baseTimeNanoseconds"] == original["baseTimeNanoseconds"]
    assert told(out) == told(source)


@pytest.mark.parametrize(
    "name", ["ddp_comm_ws4", rarely(2, "ddp_straggler_ws4"), rarely(4, "token_skew_long_tail_ws2")]
)
def test_ranks_in_one_file_have_the_report_of_their_folder(traces: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "ranks.json.gz"
    export(traces / name, "-o", out)
    assert told(out) == told(traces / name)


def test_ranks_in_one_file_share_no_process_and_no_arrow(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "ranks.json"
    export(traces / "ddp_straggler_ws4", "-o", out)
    events = of_trace(read(out))
    files = sorted((traces / "ddp_straggler_ws4").glob("rank*"))
    n_before = [Counter(event["ph"] for event in read(file)["traceEvents"]) for file in files]
    n_after = Counter(event["ph"] for event in events)
    assert all(n_after[ph] == sum(each[ph] for each in n_before) for ph in "Xsfi")
    assert all(isinstance(event["pid"], int) and event["pid"] < 2**32 for event in events)
    ends = Counter((event["cat"], event["id"]) for event in events if event["ph"] in "sf")
    per_file = [Counter((e["cat"], e["id"]) for e in read(file)["traceEvents"] if e["ph"] in "sf") for file in files]
    assert sorted(ends.values()) == sorted(count for each in per_file for count in each.values())


def test_clocks_are_aligned(tmp_path: Path) -> None:
    """Rank 1's clock shows 5 ms more, and its origin is 2 ms later: its collectives end with rank 0's all the same."""
    base = 1_700_000_000_000_000_000
    for rank, (ahead, origin) in enumerate([(0, 0), (5_000_000, 2_000_000)]):
        rows: list[Row] = []
        for number in range(30):
            at = 1_000_000 + number * 1_000_000 + ahead - origin
            late = 100_000 * (rank == number % 2)
            rows += [
                launch(at + late, at + late + 5_000, correlation=2 * number + 1),
                kernel(
                    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                    at + late + 10_000,
                    at + 300_000,
                    correlation=2 * number + 1,
                    **{
                        "Collective name": "allreduce",
                        "In msg nelems": 8,
                        "Process Group Name": "0",
                        "Group size": 2,
                        "dtype": "Float",
                        "Process Group Ranks": "[0, 1]",
                        "Out msg nelems": 8,
                    },
                ),
                span(f"ProfilerStep#{number}", at - 200_000, at + 790_000),
            ]
        info = {"backend": "nccl", "rank": rank, "world_size": 2}
        metadata = {"baseTimeNanoseconds": base + origin, "distributedInfo": info}
        (tmp_path / f"rank{rank}.json").write_bytes(to_json(rows, metadata=metadata))
    out = tmp_path / "both" / "out.json"
    out.parent.mkdir()
    export(tmp_path / "rank0.json", tmp_path / "rank1.json", "-o", out)
    ends: dict[int, list[float]] = {}
    for event in of_trace(read(out)):
        if event.get("cat") == "kernel":
            ends.setdefault(event["pid"], []).append(event["ts"] + event["dur"])
    one, other = ends.values()
    assert max(abs(a - b) for a, b in zip(sorted(one), sorted(other), strict=True)) < 1.0


def test_rows_of_profkits_own_have_names_an_order_and_no_overlap(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    export(traces / "data_cpu.pt.trace.json.gz", "-o", out)
    own = of_profkit(read(out))
    names = {event["tid"]: event["args"]["name"] for event in own if event["name"] == "thread_name"}
    assert {"profkit: steps", "profkit: budget", "profkit: idle causes"} <= set(names.values())
    assert any(name.startswith("profkit: finding input") for name in names.values())
    order = {event["tid"]: event["args"]["sort_index"] for event in own if event["name"] == "thread_sort_index"}
    assert sorted(order.values()) == list(range(len(names)))
    last: dict[int, float] = {}
    for event in own:
        if event["ph"] == "X":
            assert event["ts"] >= last.get(event["tid"], 0.0) - 1e-3
            last[event["tid"]] = event["ts"] + event["dur"]
    report = profkit.triage(traces / "data_cpu.pt.trace.json.gz")
    budget = sum(event["dur"] for event in own if event["ph"] == "X" and names[event["tid"]] == "profkit: budget")
    low, high = report.ranks[0].window_ns
    assert budget * 1000 == pytest.approx(high - low, abs=1000)


def test_an_export_of_an_export_is_the_same(traces: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    export(traces / "overhead_cpu.pt.trace.json.gz", "-o", first)
    export(first, "-o", second)
    assert sorted(map(str, read(first)["traceEvents"])) == sorted(map(str, read(second)["traceEvents"]))


def test_names_stay_text(tmp_path: Path) -> None:
    hostile = ['"},{"ph":"X"', "</script><img onerror=x>", "a\u2028b\u202e", 'x},{"name":"y', "\\"]
    rows: list[Row] = []
    for number, name in enumerate(hostile * 4):
        at = number * 100_000
        rows += [
            launch(at, at + 1000, correlation=number + 1),
            kernel(name, at + 2000, at + 50_000, correlation=number + 1),
        ]
    source, out = tmp_path / "t.json", tmp_path / "o.json"
    source.write_bytes(to_json(rows))
    export(source, "-o", out)
    assert of_trace(read(out)) == read(source)["traceEvents"]


def nine_launches() -> list[Row]:
    """A step with nine kernels, each launched."""
    launches = [launch(n * 9_000, n * 9_000 + 100, correlation=n + 1) for n in range(9)]
    kernels = [kernel("k", n * 9_000 + 500, n * 9_000 + 900, correlation=n + 1) for n in range(9)]
    return [span("ProfilerStep#1", 0, 900_000), *launches, *kernels]


def test_secrets_of_metadata_and_names_are_taken_out(tmp_path: Path) -> None:
    secret = "hf_" + "abcdefghijklmnopqrstuvwxyz012345"
    rows = [*nine_launches(), span(f"fetch {secret}", 10_000, 20_000)]
    source, out = tmp_path / "t.json", tmp_path / "o.json"
    source.write_bytes(to_json(rows, metadata={"environment": {"HF_TOKEN": secret}, "note": secret}))
    export(source, "-o", out)
    assert secret not in out.read_text()
    assert len(of_trace(read(out))) == len(rows)


def test_a_list_of_events_and_metadata_after_them_are_exported_too(tmp_path: Path) -> None:
    rows = nine_launches()
    for layout in ("list", "indented", "minified", "events_last"):
        source, out = tmp_path / f"{layout}.json", tmp_path / "o.json"
        source.write_bytes(to_json(rows, layout=layout))
        export(source, "-o", out)
        original = read(source)
        assert of_trace(read(out)) == (original if isinstance(original, list) else original["traceEvents"])


def test_a_cut_file_is_refused_and_its_whole_events_are_exported_if_lenient(traces: Path, tmp_path: Path) -> None:
    cut, out = tmp_path / "cut.json", tmp_path / "o.json"
    cut.write_bytes(gzip.decompress((traces / "data_cpu.pt.trace.json.gz").read_bytes())[:400_000])
    with pytest.raises(TruncatedTraceError):
        export(cut, "-o", out)
    assert not out.exists()
    export(cut, "-o", out, "--lenient")
    assert len(of_trace(read(out))) > 100


def test_what_cannot_be_written_is_one_line(traces: Path, tmp_path: Path) -> None:
    source = traces / "data_cpu.pt.trace.json.gz"
    with pytest.raises(UsageError, match="cannot tell a format"):
        export(source, "-o", tmp_path / "x.pdf")
    mine = tmp_path / "mine.json.gz"
    mine.write_bytes(source.read_bytes())
    with pytest.raises(UsageError, match="is the trace itself"):
        export(mine, "-o", mine)
    with pytest.raises(UsageError, match="--table is for"):
        export(source, "-o", tmp_path / "x.json", "--table", "gpu")
    with pytest.raises(UsageError, match="cannot write"):
        export(source, "-o", tmp_path / "none" / "x.json")


def test_an_export_in_the_folder_of_its_traces_is_no_rank(traces: Path, tmp_path: Path) -> None:
    for file in (traces / "ddp_strong_ws2").glob("rank*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    export(tmp_path, "-o", tmp_path / "out.json.gz")
    first = read(tmp_path / "out.json.gz")
    result = export(tmp_path, "-o", tmp_path / "out.json.gz")
    assert "profkit exported them" in result.output
    assert read(tmp_path / "out.json.gz") == first


@pytest.mark.long(5)
def test_an_export_of_ranks_in_one_file_is_the_same_job(traces: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    export(traces / "ddp_straggler_ws4", "-o", first)
    export(first, "-o", second)
    assert of_trace(read(second)) == of_trace(read(first))
    assert told(second) == told(traces / "ddp_straggler_ws4")


@pytest.mark.parametrize(
    ("text", "shift_ns", "expected"),
    [
        (b"1.5", 1, b"1.501"),
        (b"4416476910000.697", -698, b"4416476909999.999"),
        (b"0", -1, b"-0.001"),
        (b"-1.001", 1, b"-1.000"),
        (b"1e3", 1, b"1000.001"),
        (b"12345678901234567", 1, b"12345678901234567"),
        (b"1e99999999", 1, b"1e99999999"),
        (b'"soon"', 1, b'"soon"'),
        (b"null", 1, b"null"),
        (b"2.0005", 0, b"2.0005"),
    ],
)
def test_times_are_shifted_exactly(text: bytes, shift_ns: int, expected: bytes) -> None:
    assert shifted(text, shift_ns) == expected


def test_numbers_and_texts_that_no_type_holds_do_not_end_an_export(tmp_path: Path) -> None:
    """Beside a name with a secret, whose event is taken apart, and in files of several ranks."""
    secret = "hf_" + "abcdefghijklmnopqrstuvwxyz012345"
    for rank in range(2):
        rows = nine_launches()
        document = json.loads(to_json(rows, rank=rank))
        document["big"] = 10**40
        document["traceEvents"] += [
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"get {secret}",
                "pid": 1,
                "tid": 1,
                "ts": 1,
                "dur": 1,
                "args": {"x": 10**40},
            },
            {"ph": "M", "name": "process_name", "pid": 2**62, "tid": 0, "ts": "soon", "args": {"name": 10**40}},
        ]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    out = tmp_path / "o" / "out.json"
    out.parent.mkdir()
    for sources in ([tmp_path / "rank0.json"], [tmp_path / "rank0.json", tmp_path / "rank1.json"]):
        export(*sources, "-o", out)
        assert secret not in out.read_text()
        assert read(out)["big"] == 10**40
