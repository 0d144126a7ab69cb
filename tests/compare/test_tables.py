"""Result tables: columns found by name, seeds read as they are, hostile files refused in one line."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.compare.paths import compare_tables
from profkit.compare.stats.judge import judge
from profkit.compare.tables.headings import capacity_of, memory_of, metric_of, role_of
from profkit.compare.tables.result_tables import is_result_table, matched, read_table
from profkit.errors import ProfkitError, TraceFormatError, TraceNotFoundError, UsageError
from tests.compare.test_judge import assert_is_the_seeds_verdict
from tests.conftest import ROOT

SEEDS = ROOT.parent / "shared" / "data" / "seeds"


@pytest.fixture
def table(tmp_path: Path):
    """Write a file and give its path."""

    def write(text: str | bytes, name: str = "runs.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("headings", "column", "unit", "higher"),
    [
        ("tokens_per_sec", "tokens_per_sec", "tokens/s", True),
        ("Tokens/s", "Tokens/s", "tokens/s", True),
        ("step_ms,real_tok_per_sec,padded_tok_per_sec", "real_tok_per_sec", "tokens/s", True),
        ("padded_tokens_per_s,useful_tokens_per_s", "useful_tokens_per_s", "tokens/s", True),
        ("step_time_p50_ms,average_step_ms", "average_step_ms", "ns/step", False),
        ("step time (ms)", "step time (ms)", "ns/step", False),
        ("ms_per_step", "ms_per_step", "ns/step", False),
        ("it/s", "it/s", "steps/s", True),
        ("steps,step_s", "step_s", "ns/step", False),
        ("steps_per_s", "steps_per_s", "steps/s", True),
        ("images_per_sec", "images_per_sec", "images/s", True),
        ("throughput", "throughput", "work/s", True),
        ("wall_s,loss", "wall_s", "ns", False),
        ("step_ms,wall_s", "step_ms", "ns/step", False),
    ],
)
def test_the_measured_column_is_found_by_its_name(headings: str, column: str, unit: str, higher: bool) -> None:
    metric = metric_of(headings.split(","), None, "t")
    assert (metric.column, metric.unit, metric.higher_is_better) == (column, unit, higher)


@pytest.mark.parametrize(
    ("heading", "role"),
    [
        ("world_size", "gpus"),
        ("GPUs", "gpus"),
        ("n_ranks", "gpus"),
        ("per_gpu_batch", "micro_batch"),
        ("grad_accum", "accumulation"),
        ("effective_batch", "global_batch"),
        ("Global Batch Size", "global_batch"),
        ("tokens_per_step", "work"),
        ("block", "block"),
        ("arm", "arm"),
    ],
)
def test_roles_are_found_by_name(heading: str, role: str) -> None:
    assert role_of(["loss", heading], role) == heading


def test_sizes_have_the_unit_of_their_heading() -> None:
    assert memory_of(["loss", "peak_mem_gb"]) == ("peak_mem_gb", 1e9)
    assert memory_of(["gpu_memory_MiB"]) == ("gpu_memory_MiB", 2**20)
    assert memory_of(["capacity_gb"]) is None
    assert capacity_of(["peak_mem_gb", "capacity_gib"]) == ("capacity_gib", 2**30)


def test_a_row_is_a_run(table) -> None:
    runs = read_table(table("gpus,per_gpu_batch,grad_accum,step_ms,peak_mem_gb,ckpt\n4,2,3,10.5,1.5,yes\n"))
    (row,) = runs.rows
    assert (row.line, row.value, row.gpus, row.work, row.memory_bytes) == (2, 10.5e6, 4, 24, 1.5e9)
    assert row.labels == (("ckpt", "yes"),)


def test_throughput_per_gpu_becomes_that_of_all(table) -> None:
    assert read_table(table("gpus,tokens_per_sec_per_gpu\n4,100\n")).rows[0].value == 400


@pytest.mark.parametrize("form", ["list", "rows"])
def test_json_tables(table, form: str) -> None:
    rows = [{"arm": "a", "step_ms": 10, "steps": [1, 2], "note": None}, {"arm": "b", "step_ms": 11.5}]
    runs = read_table(table(json.dumps(rows if form == "list" else {"runs": rows}), "r.json"))
    assert {name: sample.values for name, sample in runs.arms().items()} == {"a": (10e6,), "b": (11.5e6,)}


def test_other_delimiters_byte_order_marks_and_blank_lines(table) -> None:
    text = "\ufeffarm;step_ms\r\na;10\r\n\r\nb;11\r\n"
    assert [row.arm for row in read_table(table(text)).rows] == ["a", "b"]
    assert read_table(table("arm\tstep_ms\na\t10\n", "x.tsv")).rows[0].value == 10e6


def test_blocks_make_a_paired_comparison(table) -> None:
    lines = [f"{block},{arm},{100 * (1 + block)}" for block in range(4) for arm in "ab"]
    arms = read_table(table("\n".join(["block,arm,wall_ms", *lines]))).arms()
    assert arms["a"].blocks == (0, 1, 2, 3)


def test_runs_without_a_result_are_left_out_and_said(table) -> None:
    runs = read_table(table("gpus,tokens_per_sec\n2,OOM\n2,100\n4,\n4,nan\n"))
    assert [row.line for row in runs.rows] == [3]
    assert runs.warnings == ("3 of 4 rows of runs.csv have no result: line 2 (OOM), line 4 (empty), line 5 (nan)",)


def test_a_column_chosen_by_name(table) -> None:
    path = table("arm,score,step_ms\na,5,10\n")
    assert read_table(path, metric="score").metric.unit == "score"
    assert read_table(path, metric="step_ms").metric.unit == "ns/step"
    with pytest.raises(UsageError, match="no column 'speed'"):
        read_table(path, metric="speed")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "no rows"),
        ("step_ms\n", "no rows"),
        ("\n\n\n", "no rows"),
        ("a,b\n1,2\n", "no column that measures speed"),
        ("step_ms,x\n1\n", "line 2 has 1 cells"),
        ("step_ms,step_ms\n1,2\n", "several columns named 'step_ms'"),
        ("step_ms\nfast\n", "line 2: step_ms is 'fast', not a number"),
        ('step_ms\n"1,234"\n', "not a number"),
        ("step_ms\n-1\n", "not a positive number"),
        ("step_ms\ninf\n", "not a positive number"),
        ("step_ms\n1e308\n", "not a positive number"),
        ("step_ms\n1e-300\n", "not a positive number"),
        ("peak_mem_gb,step_ms\ninf,1\n", "peak_mem_gb is 'inf', not a size"),
        ("peak_mem_gb,step_ms\n-1,1\n", "peak_mem_gb is '-1', not a size"),
        ("step_ms\nOOM\n", "no run with a number"),
        ("gpus,step_ms\n2.5,1\n", "gpus is '2.5', not a whole number"),
        ("gpus,step_ms\n0,1\n", "not a whole number"),
        ("gpus,step_ms\n1e300,1\n", "not a whole number"),
        ("gpus,step_ms\ninf,1\n", "not a whole number"),
        ("peak_mem_gb,step_ms\nbig,1\n", "peak_mem_gb is 'big'"),
        ('"step_ms\n1', "is not CSV"),
        (b"step_ms\n\xff\xfe", "byte 8 is not UTF-8"),
        (b"step_ms\n1\0\n", "NUL"),
        ("\x1b[31mstep\n1\n", "no column that measures speed"),
    ],
)
def test_hostile_tables_are_refused_in_one_line(table, content: str | bytes, says: str) -> None:
    with pytest.raises(TraceFormatError) as caught:
        read_table(table(content))
    assert says in caught.value.message
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("content", ["{", "3", "[]", "[1]", '{"a": 1}', '{"rows": 3}', "[" * 100_000, '[{"a": NaN}]'])
def test_hostile_json_is_refused_in_one_line(table, content: str) -> None:
    with pytest.raises(TraceFormatError):
        read_table(table(content, "r.json"))


def test_a_missing_table() -> None:
    with pytest.raises(TraceNotFoundError, match="no file"):
        read_table("not/there.csv")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text(text, encoding="utf-8", errors="replace")
    with suppress(ProfkitError):
        read_table(path)


def test_tables_that_share_no_configuration(table) -> None:
    first = read_table(table("gpus,step_ms\n2,1\n4,1\n", "a.csv"))
    second = read_table(table("gpus,step_ms\n8,1\n16,1\n", "b.csv"))
    with pytest.raises(UsageError, match="share no configuration"):
        matched(first, second)
    with pytest.raises(UsageError, match="measure different"):
        matched(first, read_table(table("gpus,tokens_per_s\n2,1\n", "c.csv")))


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ("metric", "cost", ("a.csv: 'metric', a number without a unit, higher is better", "b.csv: 'cost'", "lower is")),
        (
            "step_ms",
            "tokens_per_s",
            ("a.csv: 'step_ms' in ns/step, lower is better", "b.csv: 'tokens_per_s' in tokens/s"),
        ),
        ("step_ms", "wall_s", ("a.csv: 'step_ms' in ns/step", "b.csv: 'wall_s' in ns, lower is better")),
    ],
)
def test_tables_that_measure_different_things_are_refused_by_both_columns(table, first, second, says) -> None:
    tables = table(f"{first}\n8\n7\n", "a.csv"), table(f"{second}\n5\n6\n", "b.csv")
    with pytest.raises(UsageError, match="measure different things") as caught:
        compare_tables(tables)
    assert all(part in caught.value.message for part in says)
    assert "--metric" in caught.value.hint


def test_one_configuration_each_is_what_is_compared(table) -> None:
    first = read_table(table("mode,step_ms\neager,1\neager,2\n", "a.csv"))
    second = read_table(table("mode,step_ms\ncompiled,1\ncompiled,2\n", "b.csv"))
    ((name, old, new),) = matched(first, second)
    assert name == "mode=eager -> mode=compiled"
    assert old.values == new.values == (1e6, 2e6)


def test_what_is_a_table_and_what_a_trace(table, traces: Path) -> None:
    assert is_result_table(table("a,b\n"))
    assert is_result_table(table('[{"step_ms": 3}]', "r.json"))
    assert not is_result_table(table('{"traceEvents": [{"ph": "X"}]}', "t.json"))
    assert not is_result_table(table('[{"ph": "X"}]', "t2.json"))
    assert not any(is_result_table(path) for path in traces.glob("*.json.gz"))


@pytest.mark.shared
def test_the_seeds_prefetch_pair_is_matched_by_configuration() -> None:
    if not SEEDS.is_dir():
        pytest.skip("no seed studies beside this checkout")
    folder = SEEDS / "fsdp_study"
    ((name, old, new),) = matched(read_table(folder / "results1.csv"), read_table(folder / "8gpuprefetch.csv"))
    assert name == "8 GPUs, batch 4 x 1, activation_ckpt=False"
    assert (len(old.values), len(new.values)) == (4, 4)
    assert_is_the_seeds_verdict(judge(old, new))


@pytest.mark.shared
@pytest.mark.parametrize("name", ["training_lab_blog", "ddp_lab_blog", "transformer_token_skew_blog", "vlm_recipe"])
def test_every_seed_table_is_read(name: str) -> None:
    if not SEEDS.is_dir():
        pytest.skip("no seed studies beside this checkout")
    for path in (SEEDS / name).iterdir():
        runs = read_table(path)
        assert len(runs.rows) in (4, 8, 48)
        assert not runs.warnings
