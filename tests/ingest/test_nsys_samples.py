"""CPU samples of nsys exports: which function ran, and which of the program's own had called it."""

from pathlib import Path

import pytest

from profkit.ingest.nsys.samples import function_words
from profkit.ingest.read import read_traces
from profkit.model.trace import Trace
from tests.ingest.nsys_files import RANK0, RANK1, Export, add_training, training

LIBC, DRIVER, PYTHON, PROGRAM = "/usr/lib/libc.so.6", "/usr/lib/libcuda.so.550.54.15", "/usr/bin/python3.11", "/job/sim"
AT = 10_500_000


def read(export: Export, folder: Path) -> list[tuple[str, str, str]]:
    """Give (function, module, caller) of the samples of the first process."""
    return shown(next(iter(read_traces(str(export.write(folder / "profile.sqlite"))))))


def shown(trace: Trace) -> list[tuple[str, str, str]]:
    rows = zip(trace.samples.name, trace.samples.module, trace.samples.caller, strict=True)
    return [tuple(trace.name(int(code)) for code in row) for row in rows]


def test_a_sample_has_its_function_and_the_first_of_the_programs_own_around_it(tmp_path: Path) -> None:
    export = training()
    export.sample(
        AT,
        ("__memcpy_avx2", LIBC),
        ("float std::copy<float*>(float*, float*)", PROGRAM),
        ("solver::fill(float*, int)", PROGRAM),
        ("main", PROGRAM),
    )
    assert read(export, tmp_path) == [("__memcpy_avx2", "libc.so.6", "solver::fill (sim)")]


def test_without_a_symbol_there_is_the_module_alone(tmp_path: Path) -> None:
    export = training()
    export.sample(AT, (None, DRIVER), (None, DRIVER), ("cudaMemcpyAsync", "/x/runtime.so"), ("_PyEval_Frame", PYTHON))
    export.sample(AT + 1, ("_PyEval_Frame", PYTHON), ("[Max depth]", "[Max depth]"))
    assert read(export, tmp_path) == [
        ("", "libcuda.so.550.54.15", "cudaMemcpyAsync (runtime.so)"),
        ("_PyEval_Frame", "python3.11", ""),
    ]


def test_chains_come_in_any_order_and_count_for_their_own_process(tmp_path: Path) -> None:
    export = training()
    add_training(export, RANK1, device=1)
    export.sample(AT + 5, ("late", PROGRAM), pid=RANK0)
    export.sample(AT, ("early", PROGRAM), ("outer", PROGRAM), pid=RANK0)
    export.sample(AT, ("other", PROGRAM), pid=RANK1)
    export.sample(AT, ("stranger", PROGRAM), pid=999)
    export.rows["SAMPLING_CALLCHAINS"].reverse()
    first, second = read_traces(str(export.write(tmp_path / "profile.sqlite")))
    assert shown(first) == [("early", "sim", "early (sim)"), ("late", "sim", "late (sim)")]
    assert shown(second) == [("other", "sim", "other (sim)")]


def test_a_thread_that_did_not_run_is_no_sample(tmp_path: Path) -> None:
    export = training()
    export.sample(AT, ("poll", LIBC), state=2)
    export.sample(AT + 1, ("work", PROGRAM), state=0)
    assert read(export, tmp_path) == [("work", "sim", "work (sim)")]


def test_a_sample_without_a_chain_is_counted_without_a_function(tmp_path: Path) -> None:
    export = training()
    export.sample(AT)
    assert read(export, tmp_path) == [("", "", "")]


@pytest.mark.parametrize(
    "damage", ["UPDATE SAMPLING_CALLCHAINS SET symbol = NULL, module = 999", "DROP TABLE SAMPLING_CALLCHAINS"]
)
def test_frames_that_name_nothing(damage: str, tmp_path: Path) -> None:
    export = training()
    export.sample(AT, ("work", PROGRAM))
    path = export.write(tmp_path / "profile.sqlite", sql=[damage])
    assert [row[0] for row in shown(next(iter(read_traces(str(path)))))] == [""]


def test_a_table_without_its_columns_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    export = training()
    export.sample(AT, ("work", PROGRAM))
    path = export.write(tmp_path / "profile.sqlite", without=["COMPOSITE_EVENTS.start"])
    (trace,) = read_traces(str(path))
    assert len(trace.samples) == 0
    assert any("COMPOSITE_EVENTS has no column start" in warning.message for warning in trace.warnings)


def test_samples_move_neither_window_nor_steps(tmp_path: Path) -> None:
    plain, sampled = training(), training()
    sampled.sample(1, ("start-up", PROGRAM))
    (one,) = read_traces(str(plain.write(tmp_path / "plain.sqlite")))
    (other,) = read_traces(str(sampled.write(tmp_path / "sampled.sqlite")))
    assert (one.window_ns, one.steps, one.threads) == (other.window_ns, other.steps, other.threads)


@pytest.mark.parametrize(
    ("symbol", "words"),
    [
        ("main", "main"),
        ("drand(float*, int)", "drand"),
        ("unsigned long gen::next<float, 24ul>(gen::state<a<b>>&)", "gen::next"),
        ("std::mersenne<unsigned long, 32ul>::operator()()", "mersenne::operator()"),
        ("bool ns::less::operator<(ns::less const&) const", "less::operator<"),
        ("a::(anonymous namespace)::work(int)", "anon::work"),
        (
            "void at::native::(anonymous namespace)::add_kernel<Half>(at::Iter&)::{lambda()#1}::operator()() const",
            "add_kernel",
        ),
        ("_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault"),
        ("__libc_start_main@@GLIBC_2", "__libc_start_main"),
        ("", ""),
    ],
)
def test_a_symbol_is_named_as_people_know_it(symbol: str, words: str) -> None:
    assert words in function_words(symbol)
    assert "(" not in function_words(symbol).replace("operator()", "")


@pytest.mark.parametrize(("busy", "expected"), [((40, 38, 41), 3), ((40, 38, 41, 2), 3), ((1,), None), ((), None)])
def test_other_processes_that_are_as_busy_as_each_other_are_workers(tmp_path: Path, busy, expected) -> None:
    """Beside 20 samples of the job: workers, a launcher that sleeps, or nobody."""
    export = training()
    for number in range(20):
        export.sample(AT + number, ("step", PROGRAM))
    for place, n_samples in enumerate(busy):
        for number in range(n_samples):
            export.sample(AT + number, ("decode", PROGRAM), pid=900 + place)
    (trace,) = read_traces(str(export.write(tmp_path / "profile.sqlite")))
    assert trace.meta.metadata.get("nsys_workers") == expected
