"""Ranks merged as a tree: what comes out is what went in, whatever was merged with what, and in what order."""

import math
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profkit import api
from profkit.model.finding import Evidence
from profkit.ranks.reduce.bundle import Bundle, Interned, bundle_of, leaf, merged, opened, unfolded
from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.outcome import Outcome, outcomes_of
from profkit.ranks.reduce.records import TABLES
from profkit.ranks.run import workers
from profkit.ranks.run.fleet_report import report_of
from profkit.ranks.run.jobs import Finished
from profkit.ranks.run.store import PackedSummary
from profkit.ranks.run.workers import Gathering, Here, Pool
from profkit.render import renderer_for
from tests.conftest import ROOT, examples
from tests.ranks.jobs import job_of, rank_file

N_RANKS = 7
REAL = ROOT / "traces" / "ddp_straggler_ws4"


class Ranks(list):
    """Outcomes, of which hypothesis writes no megabyte where a test fails."""

    def __repr__(self) -> str:
        return f"{len(self)} ranks"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory) -> Ranks:
    """The outcomes of ranks of which one is late, one has no collectives, and one no step."""
    folder = job_of(tmp_path_factory.mktemp("job"), n_ranks=N_RANKS, late_us={2: 6_000})
    found = Ranks(outcomes_of(str(rank_file(folder, rank)), Options())[0] for rank in range(N_RANKS))
    found[5] = _without(found[5], "collectives", "lead_ranges", "quiet", "blocks")
    found[6] = _without(found[6], "steps")
    return found


def _without(outcome: Outcome, *tables: str) -> Outcome:
    return replace(outcome, summary=replace(outcome.summary, **{table: TABLES[table].none() for table in tables}))


@pytest.fixture(scope="module")
def real() -> Ranks:
    return Ranks(outcomes_of(str(REAL / f"rank{rank}.pt.trace.json.gz"), Options())[0] for rank in range(4))


@pytest.fixture(scope="module")
def flat(real) -> str:
    return reported(real)


def told(outcome: Outcome) -> tuple[Any, ...]:
    """All of an outcome, as bytes that tell 1 from 1.0."""
    parts = (PackedSummary.of(outcome.summary), outcome.report, outcome.verdict, outcome.case, outcome.confidence_cap)
    return tuple(msgspec.json.encode(part, enc_hook=str, order="deterministic") for part in parts)


def reported(outcomes: list[Outcome]) -> str:
    return renderer_for("triage", "json")(report_of(outcomes, (), Options()))


@st.composite
def trees(draw: st.DrawFn, places: list[int]) -> Any:
    """A tree over these places in any order: a place, or a list of trees."""
    if len(places) == 1 and draw(st.booleans()):
        return places[0]
    order = draw(st.permutations(places))
    cuts = sorted(draw(st.sets(st.integers(1, max(len(order) - 1, 1)), max_size=3)))
    parts = [order[low:high] for low, high in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    if len(parts) == 1:
        return list(parts[0])
    return [draw(trees(part)) for part in parts if part]


def reduced(tree: Any, outcomes: list[Outcome]) -> Bundle:
    if isinstance(tree, int):
        return bundle_of([(tree, leaf([outcomes[tree]]))])
    return merged(reduced(part, outcomes) for part in tree)


@given(tree=trees(list(range(N_RANKS))))
def test_any_tree_gives_back_every_rank(simulated, tree):
    found = opened(reduced(tree, simulated))
    assert [place for place, _ in found] == list(range(N_RANKS))
    for (_, after), before in zip(found, simulated, strict=True):
        assert told(after) == told(before)


@settings(max_examples=examples(40))
@given(tree=trees([0, 1, 2, 3]))
def test_any_tree_gives_the_report_of_a_flat_reduction(real, flat, tree):
    assert reported([outcome for _, outcome in opened(reduced(tree, real))]) == flat


def test_the_outcomes_of_one_source_keep_their_order(simulated):
    several = leaf(simulated[:3])
    (first, *_), again = unfolded(several), opened(merged([bundle_of([(4, several)]), bundle_of([(1, several)])]))
    assert [place for place, _ in again] == [1, 1, 1, 4, 4, 4]
    assert [outcome.summary.rank for _, outcome in again] == [0, 1, 2, 0, 1, 2]
    assert told(first) == told(simulated[0])


def test_neighbours_take_less_than_each_alone(real):
    together = bundle_of((place, leaf([outcome])) for place, outcome in enumerate(real))
    alone = sum(bundle_of([(0, leaf([outcome]))]).n_bytes for outcome in real)
    assert together.n_bytes < 0.7 * alone
    assert alone < sum(len(leaf([outcome])) for outcome in real) / 2


def test_columns_come_back_in_their_types(simulated):
    before = [outcome.summary for outcome in simulated]
    after = [outcome.summary for _, outcome in opened(bundle_of(enumerate(leaf([one]) for one in simulated)))]
    for table in TABLES:
        for old, new in zip(before, after, strict=True):
            was, now = getattr(old, table).columns(), getattr(new, table).columns()
            assert {name: (each.dtype, each.shape) for name, each in now.items()} == {
                name: (each.dtype, each.shape) for name, each in was.items()
            }
            assert not any(each.flags.writeable for each in now.values())


def test_equal_values_are_one_object_and_others_stay_apart():
    same = Interned()
    first = same.of((Evidence(statement="a b", metric="m", value=2.5, unit="ns"), ("x", 1)))
    again = same.of((Evidence(statement=" ".join("ab"), metric="m", value=2.5, unit="ns"), ("x", 1)))
    assert first is again
    apart = [(1,), (1.0,), (True,), (0.0,), (-0.0,), ("1",), frozenset({1}), frozenset({True})]
    assert [repr(same.of(value)) for value in apart] == [repr(value) for value in apart]
    assert math.copysign(1, same.of(-0.0)) == -1
    held = [1, 2]
    assert same.of((held,))[0] is held
    assert same.of(np.float64(1.5)) == 1.5


class Dying(Executor):
    """Its workers die of every merge; or they are gone, and what waited is cancelled."""

    def __init__(self, *, cancels: bool) -> None:
        self.cancels = cancels
        self.n_asked = 0

    def submit(self, fn, /, *args, **kwargs):
        self.n_asked += 1
        future: Future = Future()
        if self.cancels:
            future.cancel()
        else:
            future.set_exception(BrokenExecutor("killed"))
        return future


@pytest.mark.parametrize("executor", [Here(), Dying(cancels=False), Dying(cancels=True)])
@pytest.mark.parametrize("fan_in", [1, 3, 100])
def test_what_is_gathered_does_not_depend_on_who_merges(simulated, monkeypatch, executor, fan_in):
    monkeypatch.setattr(workers, "FAN_IN", fan_in)
    gathered = Gathering(Pool(n_workers=2, executor=executor))
    for place in (3, 0, 6, 5, 1, 2, 4):
        gathered.add(place, Finished(source=str(place), leaf=leaf([simulated[place]])))
    gathered.end()
    assert [told(outcome) for outcome in gathered.outcomes()] == [told(outcome) for outcome in simulated]
    assert gathered.outcomes() == []


def test_a_parent_of_many_ranks_says_what_one_of_few_does(tmp_path, monkeypatch):
    folder = job_of(tmp_path / "job", n_ranks=N_RANKS, late_us={2: 6_000})
    (tmp_path / "job" / "rank9.json").write_text("{}")
    sources = [str(path) for path in sorted(folder.iterdir())]
    few = api.triage_ranks(sources, executor=Here())
    monkeypatch.setattr(api, "MAX_FULL", 2)
    monkeypatch.setattr(workers, "FAN_IN", 3)
    many = api.triage_ranks(sources, executor=Here())
    assert many.failures == few.failures != ()
    assert many.verdict == few.verdict
    assert many.fleet == few.fleet
    assert [replace(rank, sections=()) for rank in few.ranks] == list(many.ranks)
