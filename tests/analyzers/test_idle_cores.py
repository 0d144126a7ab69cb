"""Operators on fewer threads than there are cores for: what the capture read of the cores, and what threads share."""

from typing import Any

import pytest

from profkit.model.documents.report import Bottleneck
from profkit.testing import Row
from profkit.timeline.scheduled import fitting_threads
from tests.analyzers.test_patterns import N_STEPS, at, nested, on_cpu, on_gpu
from tests.drawing import STEP, US, triaged
from tests.drawing import finding_in as found

IDLE: dict[str, int] = {
    "span_ns": 1000,
    "run_ns": 980,
    "wait_ns": 5,
    "all_run_ns": 985,
    "all_wait_ns": 5,
    "idle_ns": 1010,
    "cores": 2,
    "threads": 1,
    "children": 0,
    "children_run_ns": 0,
}
LARGE, SMALL = [[256, 512]], [[64, 512]]


def worked(name: str, dims: list[list[int]], start_us: int = 210, end_us: int = 950) -> list[Row]:
    """Beside the product of 190 us, such an operator in each step."""
    kinds = ["float"] * len(dims)
    return on_cpu(*at(name, start_us, end_us, Input_Dims=dims, Input_type=kinds, Concrete_Inputs=[""] * len(dims)))


def idle_cores(rows: list[Row], **told: Any) -> Any:
    return found(rows, "host.idle_cores", profkit_scheduling={**IDLE, **told})


def test_operators_on_one_thread_beside_an_idle_core() -> None:
    one = idle_cores(worked("aten::gelu", LARGE))
    assert one.evidence[0].value == N_STEPS * (190 + 740) * US
    told = 0.45 * 930 - 2 * 3
    assert one.recoverable_ns == pytest.approx(told * US, rel=0.01)
    assert 0.465 * STEP <= one.most_recoverable_ns <= 0.6 * STEP, "half of their time, and the usual"
    assert one.title == "operators run on 1 thread, while 50.5 % of the time of 2 cores is idle"
    assert one.fix.startswith("torch.set_num_threads(2) where the script sets 1, else OMP_NUM_THREADS=2")


def test_it_leads_no_verdict() -> None:
    """Few threads may be meant."""
    of = triaged(worked("aten::gelu", LARGE), profkit_scheduling=IDLE)
    assert of.verdict.bottleneck is Bottleneck.KERNEL
    assert "threads" not in of.verdict.headline
    assert "host.idle_cores" in of.found


@pytest.mark.parametrize(
    "told",
    [
        {"threads": 2},
        {"threads": 0},
        {"ranks": 2, "idle_ns": 30},
        {"ranks": 2, "idle_ns": 1010},
        {"idle_ns": 600},
        {"idle_ns": 20, "children": 1, "children_run_ns": 960},
        {"all_run_ns": 1900, "idle_ns": 90},
        {"physical": 1},
        {"quota_millicores": 1000},
        {"idle_ns": None},
        {"run_ns": None},
    ],
    ids=[
        "a thread each",
        "nobody counted",
        "two ranks",
        "two ranks that wait",
        "others",
        "a worker",
        "a thread of its own",
        "hyper-threads",
        "a quota",
        "an older capture",
        "no scheduler",
    ],
)
def test_cores_that_are_taken_or_not_known_to_be_free(told: dict[str, Any]) -> None:
    given = {key: value for key, value in {**IDLE, **told}.items() if value is not None}
    assert found(worked("aten::gelu", LARGE), "host.idle_cores", profkit_scheduling=given) is None


@pytest.mark.parametrize(
    ("name", "dims"),
    [("aten::gelu", SMALL), ("aten::native_dropout", LARGE), ("aten::sort", LARGE), ("aten::normal_", LARGE)],
    ids=["below the grain", "random numbers", "a sort", "random numbers in place"],
)
def test_operators_that_threads_do_not_share(name: str, dims: list[list[int]]) -> None:
    """The product beside them has too little of the step."""
    assert idle_cores(worked(name, dims)) is None


def test_small_operators_gain_nothing() -> None:
    every = [row for start in range(210, 900, 12) for row in at("aten::addmm", start, start + 10)]
    assert idle_cores(on_cpu(*every)) is None


def test_a_gpu_that_works_asks_for_no_threads() -> None:
    assert idle_cores(on_gpu(*nested("aten::mm"))) is None


def test_what_an_operator_calls_is_counted_once() -> None:
    one = idle_cores(
        on_cpu(
            *at("aten::addmm", 210, 800), *at("aten::copy_", 220, 300, Input_Dims=LARGE * 2, Input_type=["float"] * 2)
        )
    )
    assert one.evidence[0].value == N_STEPS * (190 + 590) * US


@pytest.mark.parametrize(
    ("told", "fits"),
    [
        ({"cores": 64, "idle_ns": 62_700}, 63),
        ({"cores": 64, "physical": 32, "idle_ns": 62_700}, 31),
        ({"cores": 64, "idle_ns": 33_000}, 34),
        ({"cores": 64, "idle_ns": 62_900, "quota_millicores": 4000}, 4),
        ({"cores": 64, "idle_ns": 60_000, "quota_millicores": 4000, "children": 2, "children_run_ns": 2000}, 2),
        ({"cores": 64, "ranks": 8, "idle_ns": 56_000}, 8),
        ({"cores": 0}, None),
        ({"span_ns": 0}, None),
    ],
)
def test_how_many_threads_have_a_core(told: dict[str, int], fits: int | None) -> None:
    assert fitting_threads({**IDLE, **told}) == fits


def test_more_cores_raise_what_it_saves_at_most() -> None:
    two, many = (idle_cores(worked("aten::gelu", LARGE), cores=n, idle_ns=n * 1000 - 990) for n in (2, 16))
    assert many.recoverable_ns == two.recoverable_ns, "about: for twice the threads, as measured"
    assert many.most_recoverable_ns > 0.85 * STEP > two.most_recoverable_ns
