"""What a capture has timed: steps that hold another loop are told apart from those of the training."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
from profkit.capture.inside import controller
from profkit.capture.inside.clock import Mark
from profkit.capture.inside.seen import Seen, with_fewer_before
from profkit.capture.options import Options, window_for

pytestmark = pytest.mark.torch
MS = 1_000_000


def marks(*steps: tuple[int, int]) -> list[Mark]:
    """The edges of steps of so many ms and fetches."""
    made = [Mark(0, 0)]
    for spent_ms, n_loads in steps:
        end_ns = made[-1].began_ns + spent_ms * MS
        made.append(Mark(end_ns, end_ns, n_loads=made[-1].n_loads + n_loads))
    return made


def test_a_validation_is_in_no_mean_of_steps():
    seen = Seen()
    seen.times["baseline"] = marks((10, 1), (11, 1), (400, 41), (12, 2), (10, 1))
    seen.times["profiled"] = marks((20, 1), (22, 1), (500, 41))
    told = seen.told()
    assert (told["baseline"]["n"], told["baseline"]["mean_ns"]) == (4, 10.75 * MS)
    assert (told["profiled"]["n"], told["profiled"]["mean_ns"]) == (2, 21 * MS)
    assert (told["n_steps"], told["odd_steps"], told["fetches_per_step"]) == (3, [2], [1, 1, 41])


@pytest.mark.parametrize("n_loads", [0, 1, 8])
def test_steps_that_all_fetch_alike_are_all_kept(n_loads):
    seen = Seen()
    seen.times["baseline"] = marks(*[(10, n_loads)] * 4, (10, n_loads + 1))
    assert (seen.told()["baseline"]["n"], seen.told()["odd_steps"]) == (5, [])


@pytest.mark.parametrize(
    ("step_s", "n_rows", "options", "baseline"),
    [
        (0.6, 5, {}, 4),
        (0.6, 3, {}, 10),  # too few as yet
        (0.1, 5, {}, 10),  # short steps
        (0.6, 5, {"baseline": 12}, 12),
    ],
)
def test_a_run_of_long_steps_is_recorded_after_few_of_them(step_s, n_rows, options, baseline):
    given = Options("", **options)
    window = replace(window_for(given, n_workers=0, n_queued=0), settling=0)
    begins_ns = [round(place * step_s * 1e9) for place in range(n_rows)]
    assert with_fewer_before(window, given, begins_ns).baseline == baseline


@pytest.mark.parametrize(("n_workers", "begins"), [(0, True), (2, False)])
def test_bursts_of_workers_stay_whole_before_a_run_of_long_steps(n_workers, begins, monkeypatch):
    tried = []
    monkeypatch.setattr(controller.store, "world_size", lambda: 1)
    window = replace(window_for(Options(""), n_workers=0, n_queued=0), settling=0)
    mine = SimpleNamespace(
        options=SimpleNamespace(baseline=0, wants_rank=lambda _: False, ranks="none"),
        _queue=SimpleNamespace(n_workers=n_workers),
        _marks=[SimpleNamespace(began_ns=place * 600 * MS) for place in range(5)],
        _finder=SimpleNamespace(step_rows=lambda: list(range(5))),
        _chosen_window=lambda: window,
        _has_begun_again=False,
        _end=tried.append,
    )
    controller.Controller._consider_start(mine, 0, 0)
    assert bool(tried) == begins, "after few steps"
