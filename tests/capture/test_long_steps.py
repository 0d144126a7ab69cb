"""Steps that are rare and long are told from a machine that hiccups, and from batches that differ."""

import pytest

pytest.importorskip("torch")

from profkit.capture.inside.added import usual_mean
from profkit.capture.inside.grown import Grown, _lengths
from profkit.capture.inside.hot_lines import hot_lines
from profkit.capture.inside.long_steps import Look, _like, period_of, told_of, usual_of
from profkit.capture.inside.slower import slower_of

pytestmark = pytest.mark.torch
MS = 1_000_000
MAIN = ("train.py", 10, "<module>")
FORWARD = (MAIN, ("train.py", 20, "train"))
BACKWARD = (MAIN, ("train.py", 21, "train"))
SAVE = (MAIN, ("train.py", 25, "train"), ("save.py", 5, "keep"))


def run_of(durations_ms, what):
    """Facts of a run whose steps take so long; `what` says which calls run at a part (0-1) of a step."""
    edges, looks, now = ([], []), [], 0
    for place, taken in enumerate(durations_ms):
        edges[0].append(now)
        looks += [Look(now + at * MS, *what(place, at, taken)) for at in range(0, taken, 10)]
        now += taken * MS
        edges[1].append(now)
    return told_of(dict(enumerate(taken * MS for taken in durations_ms)), edges, looks)


def usual(at, taken):
    return (FORWARD if at < taken // 2 else BACKWARD), "mm", ""


def test_a_save_every_ten_steps_has_its_line_its_rate_and_its_share():
    durations = [120 if place % 10 == 9 else 40 for place in range(100)]
    told = run_of(durations, lambda _, at, taken: (SAVE, "save", "save") if at >= 40 else usual(at, 40))
    rare = told["rare"]
    assert (told["n"], told["n_long"], told["usual_ns"]) == (100, 10, 40 * MS)
    assert (rare["n"], rare["every"], rare["is_regular"], rare["way"]) == (10, 10.0, True, "save")
    assert [(one["file"].rpartition("/")[2], one["line"]) for one in rare["lines"]] == [("save.py", 5)]
    assert rare["share"] == pytest.approx(10 * 80 / 4800, rel=1e-4)
    assert rare["at_place"] > 0.95


@pytest.mark.parametrize(("first", "end", "since"), [(110, 154, 100), (10, 160, 0), (60, 130, 0)])
def test_what_begins_behind_a_warm_up_has_its_share_of_the_steps_from_there_on(first, end, since):
    durations = [120 if place in range(first, end, 10) else 40 for place in range(157 if since else 160)]
    told = run_of(durations, lambda _, at, taken: (SAVE, "save", "save") if at >= 40 else usual(at, 40))
    rare, n, n_steps = told["rare"], len(range(first, end, 10)), 50 if since else 160
    assert (rare["since"], rare["n_steps"], rare["n"]) == (since, n_steps, n)
    assert rare["share"] == pytest.approx(80 * n / (40 * n_steps + 80 * n), rel=1e-4)


def test_a_hiccup_of_the_machine_is_none_of_the_steps_that_come_regularly():
    durations = [240 if place == 33 else 120 if place % 10 == 9 else 40 for place in range(100)]
    told = run_of(
        durations, lambda at, now, taken: (SAVE, "save", "save") if taken == 120 and now >= 40 else usual(now, taken)
    )
    assert (told["n_long"], told["rare"]["n"], told["rare"]["is_regular"]) == (11, 10, True)
    assert told["rare"]["long_ns"] == 120 * MS


def test_an_evaluation_of_several_lines_is_named_by_the_call_around_them():
    evaluation = [(MAIN, ("train.py", 30, "train"), ("train.py", line, "evaluate")) for line in (50, 51, 52, 53)]
    durations = [440 if place % 20 == 0 else 40 for place in range(1, 101)]
    told = run_of(durations, lambda _, at, taken: (evaluation[at // 10 % 4], "mm", "") if at >= 40 else usual(at, 40))
    assert [one["line"] for one in told["rare"]["lines"]] == [30]


def test_an_evaluation_in_functions_that_usual_steps_call_as_well_is_named_where_it_is_called():
    solver = (("solve.py", 5, "solve"), ("solve.py", 9, "step"))
    forward, evaluation = ((MAIN, ("train.py", line, "train"), *solver) for line in (20, 30))
    durations = [440 if place % 20 == 0 else 40 for place in range(1, 101)]
    told = run_of(durations, lambda _, at, taken: (evaluation if at >= 40 else forward, "mm", ""))
    assert [one["line"] for one in told["rare"]["lines"]] == [30]
    assert [one["line"] for one in told["rare"]["inside"]] == [5]


def test_longer_steps_at_the_lines_of_all_steps_are_no_finding():
    durations = [120 if place % 7 == 3 else 40 for place in range(100)]
    assert "rare" not in run_of(durations, lambda _, at, taken: usual(at, taken))


@pytest.mark.parametrize(("step_line", "is_rare"), [(26, False), (40, True)])
def test_hiccups_in_two_lines_of_all_steps_are_no_finding_and_two_lines_of_their_own_are(step_line, is_rare):
    durations = [240 if place in (13, 29, 61, 70) else 40 for place in range(100)]
    long = [(MAIN, ("train.py", 20 if step_line == 26 else 39, "train")), (MAIN, ("train.py", step_line, "train"))]
    lines = [FORWARD, (MAIN, ("train.py", 26, "train")), BACKWARD, BACKWARD]

    def what(_, at, taken):
        return (lines[at // 10] if at < 40 else long[at >= 160]), "mm", ""

    assert ("rare" in run_of(durations, what)) is is_rare


@pytest.mark.parametrize("n_long", [1, 2, 40])
def test_two_long_steps_show_no_rate_and_many_are_not_rare(n_long):
    durations = [
        120 if place % (100 // n_long) == 0 and place < n_long * (100 // n_long) else 40 for place in range(100)
    ]
    told = run_of(durations, lambda _, at, taken: (SAVE, "save", "save") if at >= 40 else usual(at, 40))
    assert "rare" not in told


FIT = (MAIN, ("train.py", 30, "main"))
EVALUATION = (*FIT, ("lib/trainer.py", 9, "evaluate"))
EVALUATES = {
    "model": ("forward", "model", (*EVALUATION, ("lib/trainer.py", 20, "loop"), ("lib/model.py", 7, "forward"))),
    "joins": ("train", "", (*EVALUATION, ("lib/trainer.py", 25, "loop"), ("lib/join.py", 5, "nested_concat"))),
}


def evaluated_run(*, recorded=(19, 20, 21), modelled=0.3, n=50, until_ms=0):
    """Steps of 40 ms; each 20th evaluates for 800 ms, and those in `recorded` are not looked at."""
    edges, looks, now = ([], []), [], 0
    spent, others = {}, {}
    for place in range(n):
        taken = 840 if place and place % 20 == 0 else 40
        edges[0].append(now)
        for at in range(0, taken, 10):
            callee, way, whole = EVALUATES["model" if at - 40 < modelled * 800 else "joins"]
            look = (
                Look(now + at * MS, FIT, callee, way, whole) if at >= 40 else Look(now + at * MS, FIT, "fit", "", LOOP)
            )
            looks += [look] * (place not in recorded)
        now += taken * MS
        edges[1].append(now)
        (others if place in recorded else spent)[place] = taken * MS
    looks += [Look(now + at * MS, FIT, *EVALUATES["joins"]) for at in range(10, until_ms, 10)]
    return told_of(spent, edges, looks, others).get("rare", {})


def test_two_evaluations_of_which_one_was_recorded_are_told_with_the_line_beside_the_model():
    rare = evaluated_run()
    assert (rare["n"], rare["n_steps"], rare["every"], rare["is_regular"]) == (2, 50, 25.0, False)
    assert (rare["lines"][0]["function"], rare["lines"][0]["line"]) == ("nested_concat", 5)
    assert rare["modelled"] == pytest.approx(0.3, abs=0.03)
    assert rare["share"] == pytest.approx(2 * 800 / (50 * 40 + 2 * 800), rel=0.01)
    assert "evaluate" in [one["function"] for one in rare["callers"]]


@pytest.mark.parametrize(("evaluated_ms", "found"), [(190, []), (700, [6])])
def test_a_step_that_the_profiler_makes_long_is_no_long_one(evaluated_ms, found):
    others = {5: 190, 6: evaluated_ms, 7: 190, 8: 270, 9: 270}
    assert _like({20: 430, 40: 430}, others) == found


def test_the_evaluation_that_a_run_ends_in_counts_for_its_rate():
    rare = evaluated_run(n=60, until_ms=800)
    assert (rare["n"], rare["n_steps"], rare["every"], rare["is_regular"]) == (3, 61, 20.0, True)


def test_an_evaluation_that_mostly_runs_the_model_is_named_by_the_call_of_the_trainer():
    rare = evaluated_run(modelled=0.9)
    assert rare["lines"][0]["function"] == "evaluate"
    assert rare["way"] == "model"


@pytest.mark.parametrize("recorded", [(), (20, 40)])
def test_a_single_evaluation_or_one_that_nothing_looked_at_shows_nothing(recorded):
    assert evaluated_run(recorded=recorded, n=50 if recorded else 30) == {}


LOOP = (*FIT, ("lightning/loops.py", 100, "advance"))
HOOK = (*FIT, ("lightning/call.py", 20, "call_hooks"), ("lightning/model_checkpoint.py", 340, "on_train_batch_end"))


def of_trainer(is_long, at, rest):
    """What a look finds where a package runs the loop: the script's line is the same all the time."""
    if is_long and at >= rest:
        return FIT, "fit", "save", (*HOOK, ("lightning/io.py", 5, "atomic_save"))
    return FIT, "fit", "", LOOP


def test_a_save_of_a_trainer_every_four_steps_is_named_by_its_callback():
    durations = [70 if place % 4 == 3 else 40 for place in range(100)]
    told = run_of(durations, lambda place, at, _: of_trainer(place % 4 == 3, at, 40))
    rare = told["rare"]
    assert (told["n_long"], rare["is_regular"], rare["way"]) == (25, True, "save")
    assert rare["lines"][0]["function"] == "on_train_batch_end"
    assert rare["lines"][0]["line"] == 340


def test_long_steps_of_a_trainer_at_the_same_lines_as_all_are_silent():
    durations = [70 if place % 4 == 3 else 40 for place in range(100)]
    assert "rare" not in run_of(durations, lambda place, at, _: of_trainer(False, at, 40))


def test_steps_that_differ_at_random_have_no_rate():
    durations = [70 if place * 7919 % 11 < 3 else 40 for place in range(100)]
    told = run_of(durations, lambda place, at, _: of_trainer(True, at, 40))
    assert told["n_long"] == 0


def test_the_usual_step_leaves_out_rare_ones_and_keeps_waits_that_are_many():
    assert usual_mean(*[10] * 9, 400) == 10
    assert usual_mean(10, 40, 10, 40, 10, 40) == 25
    assert usual_mean() is None


def test_memory_that_grows_in_all_quarters_is_told_and_an_arena_that_fills_is_not():
    growing = [(step, 2**30 + step * 4 * 2**20) for step in range(0, 100, 5)]
    filling = [(step, 2**30 + min(step, 30) * 4 * 2**20) for step in range(0, 100, 5)]
    told = Grown().told(growing)["memory"]
    assert told["bytes_per_step"] == 4 * 2**20
    assert Grown().told(filling) == {}
    assert Grown().told(growing[:3]) == {}


def test_the_list_that_keeps_graphs_is_named_with_its_line():
    import sys

    import torch

    grown, memory, kept, few = Grown(), [(0, 0)], [], [1.0]
    weight = torch.ones(2, requires_grad=True)
    for step in range(40):
        kept.append(weight.sum())
        memory.append((step + 1, (step + 1) * 8 * 2**20))
        grown.look(sys._getframe(), memory, lambda file: file == __file__)
    held = grown.told(memory)["memory"]["held"]
    assert (held["name"], held["has_graph"], held["per_step"]) == ("kept", True, 1.0)
    assert held["text"] == "kept.append(weight.sum())"
    assert len(kept) == 40
    assert few == [1.0]


def test_looking_at_a_functions_names_keeps_nothing_alive():
    import sys
    import weakref

    import torch

    tensor = torch.ones(1)
    gone = weakref.ref(tensor)
    assert _lengths(sys._getframe(), lambda file: file == __file__) is not None
    del tensor
    assert gone() is None


RECORD = (MAIN, ("train.py", 27, "train"), ("record.py", 59, "add"))


def slower_run(durations_ms, what, *, unseen=15):
    """`slower` of a run that nothing looks at in its first steps; one look every 10 ms, at odd moments."""
    edges, looks, now = ([], []), [], 0
    for place, taken in enumerate(durations_ms):
        edges[0].append(now)
        start = -now % 10
        looks += [Look((now + at) * MS, *what(place, at, taken)) for at in range(start, taken, 10) if place >= unseen]
        now += taken
        edges[1].append(now)
    edges = tuple([one * MS for one in side] for side in edges)
    spent = {place: taken * MS for place, taken in enumerate(durations_ms)}
    return slower_of(usual_of(spent), edges, looks).get("slower", {})


def weather(place):
    return place * 7919 % 5 - 2


def recording(grown):
    """A record that takes `grown(place)` ms is filled before the step's usual work of some 30 ms."""
    return lambda place, at, _: (RECORD, "", "") if at < grown(place) else usual(at - grown(place), 34)


def test_a_copy_that_grows_with_each_step_has_its_line_and_what_it_costs():
    durations = [34 + weather(place) + place // 12 for place in range(200)]
    slower = slower_run(durations, recording(lambda place: place // 12))
    assert (slower["line"]["line"], slower["line"]["file"].rpartition("/")[2]) == (59, "record.py")
    assert slower["pace_ns"] == pytest.approx(34 * MS, rel=0.03)
    assert slower["beyond_ns"] == pytest.approx(sum(place // 12 for place in range(200)) * MS, rel=0.2)
    assert slower["at_place"] > 0.66


def test_a_line_whose_growth_grows_itself_is_not_told_to_cost_far_more_than_it_does():
    durations = [34 + weather(place) + place * place // 1000 for place in range(200)]
    slower = slower_run(durations, recording(lambda place: place * place // 1000))
    assert slower["line"]["line"] == 59
    assert 1 <= slower["beyond_ns"] / (sum(place * place // 1000 for place in range(200)) * MS) < 1.3


def longer_work(place, at, taken):
    return (FORWARD if at < taken // 3 else BACKWARD), "mm", ""


@pytest.mark.parametrize(
    ("durations", "is_slower"),
    [
        ([30 + weather(place) + place // 10 for place in range(200)], True),  # a curriculum of longer sequences
        ([30 + weather(place) * 4 for place in range(200)], False),  # batches that vary
        ([60 - place if place < 30 else 30 + weather(place) for place in range(200)], False),  # a warm-up
        ([30 + weather(place) + (20 if place > 150 else 0) for place in range(200)], False),  # another program comes
        ([30 + place for place in range(20)], False),  # too few
    ],
)
def test_steps_that_grow_at_all_lines_vary_warm_up_or_jump_name_no_line(durations, is_slower):
    slower = slower_run(durations, longer_work, unseen=5)
    assert bool(slower) is is_slower
    assert "line" not in slower


PENALTY = (MAIN, ("train.py", 61, "train"), ("ewc.py", 74, "penalty"))


def penalised(grown, way=""):
    """A line that takes `grown(place)` ms, as its backward pass does, beside usual work of some 30 ms."""

    def what(place, at, _):
        if at < grown(place):
            return PENALTY, "", way
        if at < 2 * grown(place):
            return BACKWARD, "backward", ""
        return usual(at - 2 * grown(place), 34)

    return what


@pytest.mark.parametrize("way", ["", "model"], ids=["a loss", "longer inputs"])
def test_a_loss_that_grows_is_named_with_its_backward_pass_and_a_module_is_not(way):
    durations = [34 + weather(place) + 2 * (place // 12) for place in range(200)]
    slower = slower_run(durations, penalised(lambda place: place // 12, way))
    named = (slower.get("line", {}).get("line"), slower.get("has_backward"))
    assert named == ((74, True) if not way else (None, None))


@pytest.mark.parametrize("is_inline", [False, True])
def test_a_second_loop_after_a_warm_up_is_no_line_that_grows(is_inline):
    """The decoder of g2p was told to grow from nothing: the steps of its warm-up are called at another line."""

    def what(place, at, taken):
        call, forward = ((12, 20), (17, 40))[place >= 110]
        path = (MAIN, ("train.py", forward if is_inline else call, "run"))
        inner = () if is_inline else (("train.py", 30 if at < taken * 0.6 else 31, "one_step"),)
        return (*path, *inner), "mm", ""

    slower = slower_run([40 + weather(place) + place // 10 for place in range(200)], what)
    assert slower
    assert "line" not in slower


def test_growth_is_told_where_another_program_takes_the_cores_for_a_while():
    durations = [34 + weather(place) + place // 10 + (15 if place % 50 in range(12) else 0) for place in range(200)]
    slower = slower_run(durations, recording(lambda place: place // 10))
    assert slower["line"]["line"] == 59
    assert slower["beyond_ns"] == pytest.approx(sum(place // 10 for place in range(200)) * MS, rel=0.2)


def hot(steps, *, step_ms=40, weight=10):
    """Lines of a run: for each step the calls at each 10 ms, as paths; a look stands for `weight` ms."""
    edges, looks, waited, now = ([], []), [], [], 0
    for calls in steps:
        edges[0].append(now)
        for at, path in enumerate(calls):
            looks.append(Look(now + at * 10 * MS, path, "", "load" if path == LOADS else ""))
            waited.append(weight * MS)
        now += step_ms * MS
        edges[1].append(now)
    return {one["line"]: one for one in hot_lines(looks, waited, edges)["lines"]}


LOADS = (MAIN, ("data.py", 7, "__getitem__"))


def test_lines_have_their_share_of_the_run_and_their_rate():
    usual_step, saving = (FORWARD, FORWARD, BACKWARD, LOADS), (FORWARD, SAVE, SAVE, SAVE)
    lines = hot([saving if place % 4 == 3 else usual_step for place in range(40)])
    assert lines[5]["way"] == ""
    assert lines[5]["share"] == pytest.approx(30 / 160)
    assert (lines[5]["n_looks"], lines[5]["every"]) == (30, 4)
    assert lines[5]["in_thirds"] == pytest.approx([0.1875] * 3, abs=0.04)
    assert lines[20]["every"] == 0, "in each step"
    assert 7 not in lines, "a loader's line is told by the loader's own findings"


def test_a_line_that_grows_has_more_of_each_third_and_comprehensions_are_their_line():
    inner = (*SAVE, ("save.py", 5, "<dictcomp>"))
    lines = hot([(FORWARD,) * (8 - place // 8) + (inner,) * (place // 8) for place in range(40)])
    first, second, third = lines[5]["in_thirds"]
    assert first < second < third
    assert lines[5]["function"] == "keep"


@pytest.mark.parametrize(("weight", "every"), [(120, 0), (40, 3)])
def test_looks_that_skip_steps_do_not_tell_the_rate_of_a_line(weight, every):
    lines = hot([(SAVE,) * (place % 3 == 0) for place in range(240)], weight=weight)
    assert lines[5]["every"] == every


def test_no_steps_have_no_lines():
    assert hot_lines([], [], ([], [])) == {}


@pytest.mark.parametrize(("skipped", "every"), [((), 8), ((3, 4), 8), ((2,), 8)])
def test_the_period_is_the_distance_that_comes_most_often(skipped, every):
    places = [8 * turn + (turn in (2, 5)) for turn in range(1, 14) if turn not in skipped]
    assert period_of(places) == every


def test_steps_that_follow_each_other_now_and_then_have_no_period_of_one():
    assert period_of([0, 1, 2, 4, 7, 10]) == 0
