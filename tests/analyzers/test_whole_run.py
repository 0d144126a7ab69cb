"""What a capture saw of the whole run: rare steps with their share of it, and memory that grows."""

import pytest

from profkit.findings.chores import Does, fix_of_rare
from profkit.model.documents.report import Bottleneck, Report
from profkit.model.finding import Severity
from profkit.render.words.triage import step_sentence
from profkit.testing import operator, span, trace_of
from profkit.verdict.on_cpu import BEYOND
from tests.drawing import MS
from tests.drawing import triaged as told

SAVE = {"file": "train.py", "line": 31, "function": "keep", "text": "torch.save(state, path)", "share": 0.96}
RARE = {
    "lines": [SAVE],
    "n": 10,
    "every": 10.0,
    "is_regular": True,
    "long_ns": 110 * MS,
    "beyond_ns": 800 * MS,
    "share": 0.2,
    "at_place": 0.96,
    "n_looks": 40,
    "way": "save",
    "callee": "save",
}
RUN = {
    "n": 100,
    "median_ns": 30 * MS,
    "mean_ns": 40 * MS,
    "usual_ns": 32 * MS,
    "first_ns": 32 * MS,
    "last_ns": 32 * MS,
    "n_long": 10,
}
KEPT = {"name": "losses", "has_graph": True, "has_tensor": True, "per_step": 1.0, "file": "train.py", "line": 9}
GROWS = {"bytes_per_step": 5 * 2**20, "grown_bytes": 500 * 2**20, "first_step": 20, "n_steps": 100}


def line(text, function="step", number=4, share=1.0):
    """A line of the script, as a capture tells it."""
    return {"file": "train.py", "line": number, "function": function, "text": text, "share": share}


def rare_at(*lines, **rare):
    """What is told of a run whose rare steps are at these lines."""
    return told(computing(profkit_run={**RUN, "rare": {**RARE, "lines": [*lines], **rare}}))


def grows_at(line, *, step_ms=30, run=(), **slower):
    """What is told of a run that becomes slower at a line."""
    run = {**GETS_SLOWER, **dict(run), "slower": {**SLOWER, "line": line, **slower}}
    return told(computing(step_ms=step_ms, profkit_run=run))


def computing(*, long=(), step_ms=32, n_steps=12, loader="", **metadata):
    """Recorded steps of compute; those in `long` take five times as long, in Python; each begins with that range."""
    rows, now = [], 0
    for number in range(n_steps):
        work, end = now + step_ms * MS, now + step_ms * MS * (5 if number in long else 1)
        rows.append(span(f"ProfilerStep#{number}", now, end))
        rows += [span(loader, now, now + 1000)] if loader else []
        for part in range(8):
            length = (work - now) // 8
            rows.append(operator("aten::mm", now + part * length, now + (part + 1) * length - 1000))
        now = end
    return trace_of(rows, **metadata)


@pytest.mark.parametrize("long", [(), (2, 9)])
def test_a_save_every_ten_steps_is_the_verdict_with_its_share_of_the_run(long):
    verdict, found, rank = told(computing(long=long, profkit_run={**RUN, "rare": RARE}))
    assert verdict.bottleneck is Bottleneck.OVERHEAD
    assert verdict.headline == (
        "every 10 steps, train.py:31 in keep(): torch.save(state, path) takes 80.0 ms: 20.0 % of the run"
    )
    assert verdict.recoverable_ns == pytest.approx(8 * MS, rel=0.01)
    assert verdict.step_ns == pytest.approx(40 * MS, rel=0.01), "the mean of the run"
    assert verdict.most_recoverable_ns >= verdict.recoverable_ns
    assert found["host.rare"].places[0].place.line == 31
    assert "host.launch_bound" not in found, "the recorded steps that hold a save are set apart"
    report = Report(verdict=verdict, ranks=(rank,), findings=rank.findings, skipped=rank.skipped)
    assert step_sentence(report).startswith("Step 40.0 ms on average (")


def test_what_begins_behind_a_warm_up_says_from_which_step_on_its_share_is() -> None:
    rare = {**RARE, "n_steps": 40, "n": 4, "beyond_ns": 320 * MS, "since": 60}
    verdict, found, _ = told(computing(profkit_run={**RUN, "rare": rare}))
    assert verdict.headline.startswith("every 10 steps from step 60 on, train.py:31 in keep()")
    said = [one.statement for one in found["host.rare"].evidence]
    assert "before step 60 the run does none of it: its share is of the steps from there on" in said
    assert verdict.recoverable_ns == pytest.approx(8 * MS, rel=0.01)


@pytest.mark.parametrize(("n_long", "n", "is_apart"), [(4, 100, True), (10, 100, False), (1, 12, False)])
def test_a_long_recorded_step_is_set_apart_where_the_run_has_few(n_long, n, is_apart):
    verdict, found, _ = told(computing(long=(2,), profkit_run={**RUN, "n_long": n_long, "n": n}))
    assert ("host.stall" in found) is not is_apart, "the end of an epoch, say, that nothing else caught"
    note = "step 2 also does what only some steps of the run do: shares are of the 9 steps without it"
    assert any(one.startswith(note) for one in verdict.caveats) is is_apart


def test_of_five_recorded_steps_the_long_one_in_the_middle_is_set_apart_as_well():
    verdict, _, rank = told(computing(long=(2,), n_steps=5, profkit_run={**RUN, "n_long": 0, "n": 60}))
    assert any("shares are of the 2 steps without it" in one for one in verdict.caveats)
    assert rank.steps.mean_ns == 32 * MS
    assert rank.window_ns[1] - rank.window_ns[0] == 2 * 32 * MS


def test_a_rare_step_that_waits_for_an_item_is_about_the_input_and_no_profiler_cost():
    metadata = {
        "profkit_run": {**RUN, "rare": {**RARE, "way": "load", "share": 0.8, "beyond_ns": 12_800 * MS}},
        "profkit_unprofiled_step_mean_ns": 2 * MS,
        "profkit_unprofiled_usual_ns": 32 * MS,
        "profkit_profiled_usual_ns": 33 * MS,
    }
    verdict, found, rank = told(computing(**metadata))
    assert verdict.bottleneck is Bottleneck.DATA
    assert found["input.rare"].fraction == 0.8
    assert verdict.confidence >= 0.8
    assert verdict.step_ns == pytest.approx(160 * MS, rel=0.01)
    assert verdict.speedup_ceiling == pytest.approx(5, rel=0.02)
    assert next(check for check in rank.checks if check.id == "profiler.cost").ok


def test_what_rare_steps_take_is_no_finding_below_its_limit():
    verdict, found, _ = told(computing(profkit_run={**RUN, "rare": {**RARE, "share": 0.02, "beyond_ns": 60 * MS}}))
    assert "host.rare" not in found
    assert verdict.bottleneck is Bottleneck.KERNEL


JOIN = {
    "file": "site-packages/transformers/trainer_pt_utils.py",
    "line": 86,
    "function": "torch_pad_and_concatenate",
    "text": "return torch.cat((tensor1, tensor2), dim=0)",
    "share": 0.7,
}
IN_TRAINER = {"file": "site-packages/transformers/trainer.py", "line": 30, "function": "evaluation_loop", "share": 1.0}
EVALUATION = {**RARE, "lines": [JOIN], "callers": [IN_TRAINER], "way": "", "callee": "train", "share": 0.4}


def test_of_an_evaluation_that_joins_outputs_the_share_is_without_its_forward_passes():
    rare = {**EVALUATION, "modelled": 0.25, "at_place": 0.7, "n": 3, "n_steps": 60, "beyond_ns": 1280 * MS}
    verdict, found, _ = told(computing(profkit_run={**RUN, "n": 44, "n_long": 1, "rare": rare}))
    assert verdict.bottleneck is Bottleneck.OVERHEAD
    assert "torch_pad_and_concatenate" in verdict.headline
    assert "takes 320 ms of an evaluation: 30.0 % of the run" in verdict.headline
    assert verdict.recoverable_ns == pytest.approx(16 * MS, rel=0.01)
    assert verdict.step_ns == pytest.approx((32 + 1280 / 60) * MS, rel=0.01), "with the forward passes"
    assert "only what the metric reads" in found["host.rare"].fix


@pytest.mark.parametrize(
    ("text", "is_joined"),
    [
        ("return torch_pad_and_concatenate(tensors, new_tensors, padding_index=padding_index)", True),
        ("return type(tensors)(nested_concat(t, n) for t, n in zip(tensors, new_tensors))", True),
        ("return type(tensors)(nested_detach(t) for t in tensors)", False),
    ],
)
def test_where_a_trainer_joins_what_a_model_returns_the_advice_is_to_return_less(text, is_joined):
    join = {**JOIN, "line": 128, "function": "nested_concat", "text": text}
    found = told(computing(profkit_run={**RUN, "rare": {**EVALUATION, "lines": [join]}})).found["host.rare"]
    assert ("what the metric reads" in found.fix) is is_joined
    of_trainer = fix_of_rare(
        Does(way="", text=text, callee="", functions=frozenset(), is_evaluation=True, is_model=False),
        "",
        "transformers",
    )
    assert ("output_hidden_states" in of_trainer) is is_joined


@pytest.mark.parametrize(("saved", "fix"), [("self", "save what changes alone"), ("state", "save less often")])
def test_a_save_of_the_whole_trainer_is_told_to_save_less_of_it(saved, fix):
    one = rare_at(line(f"torch.save({saved}, path)", "save"), way="save").found["host.rare"]
    assert one.fix.startswith(fix)


@pytest.mark.parametrize("text", ['log.info(f"pos={pos}")', "show(pos)"])
def test_rare_steps_that_make_text_of_tensors_are_told_to_leave_that_to_the_logger(text):
    assert "isEnabledFor" in rare_at(line(text, "report"), way="text").found["host.rare"].fix


VALIDATES = line("loss = self(x)", "validation_step", 9)


@pytest.mark.parametrize(("share", "is_cause"), [(0.2, False), (0.4, True)])
def test_an_evaluation_of_forward_passes_is_part_of_the_job_up_to_its_limit(share, is_cause):
    layer = line("h = self.trunk(x)", "forward")
    verdict, found, _ = rare_at(layer, callers=[VALIDATES], way="model", modelled=0.9, share=share)
    finding = found["host.rare" if is_cause else "host.other_steps"]
    assert "validation_step" in finding.title
    assert "evaluate less often" in finding.fix
    assert (verdict.bottleneck is Bottleneck.OVERHEAD) is is_cause


@pytest.mark.parametrize(("share", "is_cause"), [(0.4, False), (0.6, True)])
def test_experience_that_takes_more_than_all_training_is_the_verdict(share, is_cause):
    asks = line("action = torch.stack([policy(s).sample() for s in state])", "<listcomp>")
    verdict, found, _ = rare_at(asks, way="", share=share, beyond_ns=3000 * MS)
    finding = found["host.rare" if is_cause else "host.other_steps"]
    assert finding.fix.startswith("where it asks a model for one item after the other, ask once for all")
    assert (finding.recoverable_ns > 0) is is_cause
    assert verdict.bottleneck is (Bottleneck.OVERHEAD if is_cause else Bottleneck.KERNEL)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("gc.collect()", "host.rare"),
        ("rows = collect(env)", "host.other_steps"),
        ("a, log_prob = pi(torch.from_numpy(s))", "host.other_steps"),  # minimalRL's SAC
        ("s, r, done, _ = env.step(a)", "host.other_steps"),
    ],
)
def test_a_collection_of_garbage_is_no_collection_of_experience(text, kind):
    assert {"host.rare", "host.other_steps"} & set(rare_at(line(text, "tidy"), way="").found) == {kind}


@pytest.mark.parametrize(
    ("text", "named", "fix"),
    [
        ("json.dump(self.seen, file)", "json.dump", "leave tensors as they are"),
        ("h = torch.cat([self.up(x), skip], 1)", "loss = self(x)", "evaluate less often"),
    ],
)
def test_the_fix_of_rare_steps_is_for_the_line_that_is_named(text, named, fix):
    layer = line(text, "forward")
    verdict, found, _ = rare_at(layer, callers=[VALIDATES], way="model", modelled=0.9, share=0.4)
    assert named in verdict.headline
    assert found["host.rare"].fix.startswith(fix)


@pytest.mark.parametrize(
    ("text", "function"), [("json.dump(self.seen, file)", "validation_step"), ("h = self.penalty(x)", "forward")]
)
def test_what_is_no_evaluation_of_the_model_has_its_whole_share(text, function):
    assert rare_at(line(text, function), way="model", modelled=0.9).found["host.rare"].fraction == 0.2


def test_a_data_set_that_each_epoch_builds_anew_is_to_be_built_once():
    builds = line("train_set = Windows(*make_windows(self.frame, 168, 24))", "train_dataloader", 80, 0.8)
    found = rare_at(builds, way="", callee="wrapper").found
    assert found["host.rare"].fix.startswith("build the data set once, before the loop")


@pytest.mark.parametrize(
    ("text", "other", "fix"),
    [
        ("windows = Windows(path, cfg)", "print(validate(model, held_out))", "if it builds the same each time"),
        ("order = shuffled(rows)", "print(validate(model, held_out))", "do it less often, or beside"),
        ("score(model, held_out)", "for x, y in validate(held_out):", "do it less often, or beside"),
        ("err = validate(model, held_out)", "order = shuffled(rows)", "compute the metric on whole batches"),
        ("print(validate(model, held_out))", "windows = Windows(path, cfg)", "compute the metric on whole batches"),
        ("print(metrics.validate(rows))", "windows = Windows(path, cfg)", "compute metrics every few hundred steps"),
    ],
)
def test_the_fix_speaks_of_a_metric_where_the_line_that_is_named_evaluates(text, other, fix):
    found = rare_at(line(text, "run", 122, 0.6), line(other, "run", 133, 0.3), way="", modelled=0.2).found
    assert found["host.rare"].fix.startswith(fix)
    assert ("of an evaluation" in found["host.rare"].title) == ("validate(model" in text)


@pytest.mark.parametrize(("function", "stops"), [("greedy", True), ("beam_search", True), ("report", False)])
def test_a_rare_decoding_is_told_to_stop_where_all_sequences_have_ended(function, stops):
    line = {**SAVE, "function": function, "text": "lg, state = self.tick(tok, mem, state)"}
    _, found, _ = told(computing(profkit_run={**RUN, "rare": {**RARE, "lines": [line], "way": ""}}))
    assert ("stop as soon as all sequences have ended" in found["host.rare"].fix) is stops


def test_the_name_of_what_grows_cannot_fill_a_report_or_steer_a_terminal():
    memory = {**GROWS, "held": {**KEPT, "name": "\x1b[2J" + "x" * 10_000}}
    _, found, _ = told(computing(profkit_run={**RUN, "n_long": 0, "memory": memory}))
    assert "\x1b" not in found["memory.grows"].title
    assert len(found["memory.grows"].title) < 1000


@pytest.mark.parametrize("has_graph", [True, False])
def test_a_kept_graph_is_no_healthy_job_and_a_buffer_that_fills_is(has_graph):
    memory = {**GROWS, "held": {**KEPT, "has_graph": has_graph}}
    verdict, found, _ = told(computing(profkit_run={**RUN, "n_long": 0, "memory": memory}))
    grows = found["memory.grows"]
    assert grows.severity is (Severity.MEDIUM if has_graph else Severity.LOW)
    assert verdict.is_healthy is not has_graph
    assert ("losses" in verdict.headline) is has_graph
    assert grows.recoverable_ns == 0


def test_steps_that_grow_with_the_memory_are_what_it_costs():
    run = {**RUN, "n_long": 0, "last_ns": 48 * MS, "memory": {**GROWS, "held": KEPT}}
    verdict, found, _ = told(computing(profkit_run=run))
    assert found["memory.grows"].recoverable_ns == 8 * MS
    assert verdict.bottleneck is Bottleneck.MEMORY


@pytest.mark.parametrize(
    "run",
    [{}, [], "no", {**RUN, "n": "many"}, {**RUN, "median_ns": -1}, {**RUN, "rare": {**RARE, "share": 7}}, {"n": 3}],
)
def test_what_holds_no_run_says_nothing(run):
    _, found, rank = told(computing(profkit_run=run))
    assert not {"host.rare", "input.rare", "memory.grows"} & set(found)
    assert "whole_run" in {skip.analyzer for skip in rank.skipped}


@pytest.mark.parametrize(("last_ms", "word"), [(48, "slower"), (20, "faster"), (34, "")])
def test_a_run_that_becomes_slower_or_faster_says_so(last_ms, word):
    verdict, _, _ = told(computing(profkit_run={**RUN, "n_long": 0, "last_ns": last_ms * MS}))
    said = [note for note in verdict.caveats if note.startswith("the run becomes")]
    assert bool(said) is bool(word)
    assert all(word in note for note in said)


@pytest.mark.parametrize(("n_workers", "is_rare"), [(2, True), (8, False)])
def test_a_wait_for_each_round_of_the_workers_is_nothing_rare(n_workers, is_rare):
    run = {**RUN, "rare": {**RARE, "way": "wait"}}
    _, found, _ = told(computing(profkit_run=run, profkit_loaders=[{"n_workers": n_workers}]))
    assert ("input.rare" in found) is is_rare


@pytest.mark.parametrize(("batches", "is_start"), [(100, True), (105, True), (250, False), (20, False)])
def test_waits_as_often_as_workers_are_started_are_their_starts(batches, is_start):
    run = {**RUN, "rare": {**RARE, "way": "wait"}}
    starts = [{"n_workers": 2, "starts": 10, "ns": 100 * MS, "batches": batches}]
    _, found, _ = told(computing(profkit_run=run, profkit_worker_starts=starts))
    assert ("starting the loader's workers" in found["input.rare"].title) is is_start
    assert found["input.rare"].fix.startswith("persistent_workers=True" if is_start else "find the items")


CAT = {"file": "train.py", "line": 59, "function": "add", "text": "self.err = torch.cat([self.err, err])", "share": 1.0}
SLOWER = {"pace_ns": 30 * MS, "beyond_ns": 800 * MS, "n": 100, "line": CAT, "at_place": 0.9, "n_looks": 40}
GETS_SLOWER = {**RUN, "n_long": 0, "first_ns": 32 * MS, "last_ns": 44 * MS, "usual_ns": 38 * MS}


@pytest.mark.parametrize(
    ("text", "callee", "kind", "bottleneck"),
    [
        ("self.err = torch.cat([self.err, err])", "", "memory.recopies", Bottleneck.MEMORY),
        ("frame = join(frame, row)", "concat", "memory.recopies", Bottleneck.MEMORY),
        ("best = min(smooth(self.losses))", "smooth", "host.slows", Bottleneck.OVERHEAD),
    ],
)
def test_a_line_that_takes_longer_with_each_step_is_the_verdict_with_its_share_of_the_run(
    text, callee, kind, bottleneck
):
    verdict, found, rank = grows_at({**CAT, "text": text}, callee=callee)
    assert (verdict.bottleneck, verdict.is_healthy) == (bottleneck, False)
    assert "train.py:59" in verdict.headline
    assert "37.5 % longer in the last third of the run" in verdict.headline
    assert found[kind].fraction == pytest.approx(800 / 3800)
    assert found[kind].places[0].place.line == 59
    assert verdict.recoverable_ns == pytest.approx(8 * MS, rel=0.01)
    assert verdict.step_ns == pytest.approx(38 * MS, rel=0.01), "the mean of the run"
    assert verdict.most_recoverable_ns == pytest.approx(8 * MS * (1 + BEYOND), rel=0.01)
    assert any(section.analyzer == "whole_run" and "pace_ns" in section.values for section in rank.sections)


def test_a_line_that_grows_saves_at_most_all_that_the_run_is_at_its_function():
    """How much of it is there from the first step on is not known."""
    hot = {**CAT, "line": 60, "share": 0.2, "n_looks": 300, "in_thirds": [0.1, 0.2, 0.3]}
    elsewhere = {**hot, "function": "other", "line": 80}
    verdict = grows_at(CAT, run={"lines": [hot, {**hot, "line": 61}, elsewhere]}).verdict
    whole = 0.4 * 38 * MS
    assert verdict.recoverable_ns == pytest.approx(8 * MS, rel=0.01)
    assert verdict.most_recoverable_ns == pytest.approx((1 + BEYOND) * whole, rel=0.01)


@pytest.mark.parametrize(("every", "left"), [(10.0, 0.8), (20.0, 1.0)])
def test_what_grows_with_each_of_many_tasks_stays_once_in_every_task_but_the_first(every, left):
    rare = {"lines": [CAT], "n": 10, "every": every, "is_regular": True, "long_ns": 40 * MS, "beyond_ns": MS}
    rare = {**rare, "share": 0.001, "at_place": 0.9, "n_looks": 40, "way": ""}
    sums = {**CAT, "text": "total = total + (f * (p - w) ** 2).sum()"}
    found = grows_at(sums, run={"n": 100, "rare": rare}, has_backward=True).found
    assert found["host.slows"].fraction == pytest.approx(left * 800 / 3800)
    assert "at that line and in its backward pass" in found["host.slows"].evidence[1].statement


def test_hooks_that_pile_up_save_what_the_run_is_at_their_function_but_for_the_first_ones():
    text = "self.stats[name].append(output.mean())"
    hot = {**CAT, "text": text, "share": 0.3, "n_looks": 300, "in_thirds": [0.1, 0.3, 0.5]}
    slower = {**SLOWER, "line": {**CAT, "text": text}}
    run = {**GETS_SLOWER, "slower": slower, "lines": [hot], "hooks": [6, 234]}
    _, found, _ = told(computing(step_ms=30, profkit_run=run))
    assert found["host.slows"].fraction == pytest.approx(0.3 * (1 - 12 / 240))
    _, looked_at, _ = told(computing(step_ms=30, profkit_run={**run, "slower": None, "hooks": [0, 84]}))
    assert looked_at["host.slows"].fraction == pytest.approx(0.3), "none of them was there at first"
    _, steady, _ = told(computing(step_ms=30, profkit_run={**run, "hooks": [0, 0]}))
    assert steady["host.slows"].fraction == pytest.approx(800 / 3800), "what stays of the line is not known"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("self.path.write_text(json.dumps(self.records))", "write only what is new"),
        ("best = min(smooth(self.losses))", "if it goes through all that was seen so far"),
    ],
)
def test_the_fix_of_a_line_that_grows_is_by_what_it_does(text, fix):
    assert grows_at({**CAT, "text": text}, callee="iterencode").found["host.slows"].fix.startswith(fix)


UNKNOWN = {"pace_ns": 30 * MS, "beyond_ns": 300 * MS, "n": 100}


@pytest.mark.parametrize("cpu_ms", [(0, 0), (30, 36)])
def test_a_run_that_becomes_slower_at_no_line_is_not_healthy(cpu_ms):
    first, last = cpu_ms
    run = {**RUN, "n_long": 0, "last_ns": 41 * MS, "slower": UNKNOWN}
    steady, _, _ = told(computing(profkit_run={**RUN, "n_long": 0}))
    little, _, _ = told(computing(profkit_run={**run, "last_ns": 37 * MS}))
    assert little.is_healthy
    assert little.confidence < 0.75
    slower, found, _ = told(computing(profkit_run={**run, "cpu_first_ns": first * MS, "cpu_last_ns": last * MS}))
    assert steady.confidence >= 0.75 > slower.confidence
    assert steady.is_healthy
    assert not slower.is_healthy
    assert slower.headline.startswith(
        "a step takes 32.0 ms in the first third of the run, 41.0 ms in its last: the recorded steps, early in it,"
        " do not show why"
    )
    assert "leave it alone" not in slower.fixes[0]
    assert "--unprofiled-steps 75 --folder late" in slower.next_tool.command
    assert any(note.startswith("the run becomes slower") for note in slower.caveats)
    assert not {"host.slows", "memory.recopies"} & set(found)


@pytest.mark.parametrize(("late", "is_named"), [(0.46, True), (0.4, False)])
def test_the_line_with_half_of_what_an_unexplained_run_grows_by_is_said(late, is_named):
    """unet_cells at times grows in leaps: two lines join what is kept, no quarter is steady."""
    hot = {**CAT, "share": 0.4, "n_looks": 147, "in_thirds": [0.34, 0.38, late]}
    run = {**RUN, "n_long": 0, "first_ns": 46 * MS, "last_ns": 128 * MS, "lines": [hot]}
    verdict, _, _ = told(computing(profkit_run=run))
    assert (" of that at train.py:59" in verdict.headline) is is_named


def test_steps_that_wait_for_the_machine_name_no_line():
    """Beside seven other programs a decoder was told to grow, by 31 %."""
    slower = {**SLOWER, "line": {**CAT, "text": "logits = self.tick(tokens)"}}
    run = {**GETS_SLOWER, "slower": slower, "cpu_first_ns": 30 * MS}
    waits, found, _ = told(computing(profkit_run={**run, "cpu_last_ns": 31 * MS}))
    assert not {"host.slows", "memory.recopies"} & set(found)
    assert waits.is_healthy
    assert waits.confidence < 0.75
    _, found, _ = told(computing(profkit_run={**run, "cpu_last_ns": 37 * MS}))
    assert "host.slows" in found


def test_what_grows_too_little_is_no_finding_and_what_grows_with_memory_is_said_once():
    assert "memory.recopies" not in grows_at(CAT, step_ms=32, beyond_ns=60 * MS).found
    assert grows_at(CAT, step_ms=32, run={"memory": GROWS}).found["memory.grows"].recoverable_ns == 0


@pytest.mark.parametrize(("line", "odd"), [(CAT, {"pace_ns": -1}), (CAT, {"at_place": 0}), (3, {})])
def test_a_growth_that_does_not_hold_together_says_nothing(line, odd):
    assert "memory.recopies" not in grows_at(line, step_ms=32, **odd).found


SUNK = {"of": "the optimizer's trace", "n_first": 0, "n_last": 200_000}


@pytest.mark.parametrize(
    ("text", "sunk", "kind"),
    [
        ("e.mul_(decay)", SUNK, "work.sinks"),
        ("self.opt.step(delta)", SUNK, "work.sinks"),
        ("v = v * decay + current", {**SUNK, "of": "self.v"}, "work.sinks"),
        ("v.mul_(decay)", {**SUNK, "of": "self.v"}, "work.sinks"),
        ("kept.add_(batch)", {**SUNK, "of": "self.v"}, "host.slows"),
        ("best = min(smooth(self.losses))", SUNK, "host.slows"),
        ("mean = sum(losses) / len(losses)", {**SUNK, "of": "self.v"}, "host.slows"),
        ("e.mul_(decay)", {**SUNK, "n_last": 2_000}, "host.slows"),
        ("e.mul_(decay)", {**SUNK, "n_first": 200_000}, "host.slows"),
        ("self.kept = torch.cat([self.kept, v * 2])", {**SUNK, "of": "v"}, "memory.recopies"),
    ],
)
def test_numbers_that_become_subnormal_are_no_growing_history(text, sunk, kind):
    found = grows_at({**CAT, "text": text, "function": "step"}, run={"subnormal": sunk}).found
    growing = [one for one in found if one in ("work.sinks", "host.slows", "memory.recopies")]
    assert growing == [kind]
    if kind == "work.sinks":
        assert "set_flush_denormal" in found[kind].fix
        assert "fills with subnormal numbers" in found[kind].title


def test_the_optimizers_numbers_are_no_cause_at_a_line_outside_of_its_step():
    """Adam's averages of rows that are never looked up become subnormal in any long run."""
    found = grows_at({**CAT, "text": "kept.add_(batch)"}, run={"subnormal": SUNK}).found
    assert "host.slows" in found
    assert "work.sinks" not in found


def test_starts_of_workers_are_their_share_of_the_mean_step_of_the_run():
    """By the recorded step alone, bird_calls' restarts (38 % of the run) were told as worth 22 %."""
    starts = [{"n_workers": 2, "starts": 4, "ns": 4 * 320 * MS, "batches": 40, "is_rebuilt": False, "steps": 40}]
    metadata = {"profkit_run": {**RUN, "rare": {**RARE, "way": "load"}}, "profkit_worker_starts": starts}
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    verdict, found, _ = told(computing(loader=name, **metadata))
    restarted = found["input.restarted"]
    assert verdict.step_ns > 32 * MS
    assert restarted.recoverable_ns == pytest.approx(restarted.fraction * verdict.step_ns, rel=0.01)


def test_numbers_that_sink_save_no_more_than_the_steps_took_at_first():
    decays = {**CAT, "text": "e.mul_(decay)", "function": "step"}
    run = {**GETS_SLOWER, "mean_ns": 38 * MS, "slower": {**SLOWER, "line": decays}}
    trace = computing(step_ms=34, profkit_run={**run, "subnormal": SUNK}, profkit_unprofiled_usual_ns=34 * MS)
    assert told(trace)[1]["work.sinks"].fraction == pytest.approx(4 / 38)


PLANES = {
    "of": "views",
    "n_first": 15_000,
    "n_last": 69_000,
    "first_ns": 40 * MS,
    "last_ns": 76 * MS,
    "mean_ns": 66 * MS,
    "others": [{"of": "surface.planes", "n_first": 5_000, "n_last": 23_000}],
}
DECAYS = {**CAT, "text": "self.planes.mul_(self.leak)", "n_looks": 45, "share": 0.06, "in_thirds": [0.05, 0.06, 0.07]}


def sinking(**changed):
    run = {**RUN, "n_long": 0, "first_ns": 53 * MS, "last_ns": 79 * MS, "mean_ns": 66 * MS, "usual_ns": 66 * MS}
    run = {**run, "subnormal": PLANES, "lines": [DECAYS], **changed}
    return told(computing(step_ms=42, profkit_run=run, profkit_unprofiled_usual_ns=42 * MS))


def test_what_decays_is_named_where_many_lines_compute_with_it():
    """59 % of eye_tracker: the planes' own line had a fifth of the growth, a convolution and its backward the rest."""
    verdict, found, _ = sinking()
    sinks = found["work.sinks"]
    assert sinks.fraction == pytest.approx(1 - (40 - 36 * 5 / 18) / 66, rel=0.01), "of steps with no such number"
    assert "as surface.planes fills with subnormal numbers" in sinks.title
    assert sinks.places[0].place.line == CAT["line"]
    assert verdict.headline.startswith(sinks.title)
    assert not verdict.is_healthy
    assert verdict.step_ns == pytest.approx(66 * MS, rel=0.01), "the mean of the run"
    assert verdict.recoverable_ns == pytest.approx(sinks.fraction * verdict.step_ns, rel=0.02)
    assert verdict.recoverable_ns < verdict.most_recoverable_ns < verdict.step_ns


def test_numbers_that_sink_save_a_part_of_the_run_though_all_of_a_step_seems_theirs():
    """By what each of them costs, a step without them would take no time at all."""
    planes = {"of": "surface.planes", "n_first": 50_000, "n_last": 68_000}
    sinks = sinking(subnormal={**PLANES, "others": [planes]}).found["work.sinks"]
    assert sinks.fraction == pytest.approx(0.8)
    assert 0 < sinks.recoverable_ns <= sinks.most_recoverable_ns


@pytest.mark.parametrize(
    "changed",
    [
        {"last_ns": 54 * MS},
        {"lines": [{**DECAYS, "text": "self.kept.mul_(self.leak)"}]},
        {"lines": [{**DECAYS, "in_thirds": [0.07, 0.06, 0.05]}]},
        {"subnormal": {**PLANES, "others": [{"of": "surface.planes", "n_first": 0, "n_last": 2_000}]}},
        {"subnormal": {**PLANES, "mean_ns": 0}},
        {"cpu_first_ns": 40 * MS, "cpu_last_ns": 41 * MS},
    ],
    ids=["steady", "another tensor", "ever less", "few values", "times unknown", "the machine"],
)
def test_what_decays_is_no_cause_where_it_costs_nothing(changed):
    assert "work.sinks" not in sinking(**changed)[1]


@pytest.mark.parametrize(
    ("text", "name", "fix", "says"),
    [
        ("u, s, vh = torch.linalg.svd(g)", "work.rare", "full_matrices=False", True),
        ("u, s, vh = torch.linalg.svd(g, full_matrices=False)", "work.rare", "eigh of the smaller Gram matrix", False),
        ("u, s, vh = torch.linalg.svd(", "work.rare", "eigh of the smaller Gram matrix", False),
        ("u, s, vh = torch.linalg.svd(g.float(), False)", "work.rare", "eigh of the smaller Gram matrix", False),
        ("u, s, v = torch.svd(g)", "work.rare", "eigh of the smaller Gram matrix", False),
        ("w, q = torch.linalg.eigh(stat)", "work.rare", "do it less often", False),
        ("u, s, vt = np.linalg.svd(g.numpy())", "host.rare", "compute them every few hundred steps", False),
        ("self.svd(g)", "host.rare", "do it less often", False),
    ],
)
def test_a_decomposition_in_rare_steps_is_work_of_which_a_part_is_needed(text, name, fix, says):
    line = {"file": "train.py", "line": 55, "function": "subspace", "text": text, "share": 0.95}
    rare = {**RARE, "lines": [line], "way": "", "share": 0.3, "beyond_ns": 1370 * MS}
    verdict, found, _ = told(computing(profkit_run={**RUN, "rare": rare}))
    assert verdict.findings[0].id == name
    assert verdict.bottleneck is (Bottleneck.KERNEL if name == "work.rare" else Bottleneck.OVERHEAD)
    assert found[name].fix.startswith(fix)
    assert any("square basis" in one.statement for one in found[name].evidence) is says
    assert found[name].places[0].place.line == 55
    assert verdict.step_ns == pytest.approx((32 + 13.7) * MS, rel=0.01)
