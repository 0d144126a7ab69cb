"""A line that does something beside training: told by its text, by looks at the run, else between operators."""

import pytest

from profkit.findings.chores import CHORES, chore_of
from profkit.model.documents.report import Bottleneck
from profkit.testing import operator, span
from tests.analyzers.test_whole_run import RUN, computing
from tests.drawing import MS, NODE, in_steps
from tests.drawing import triaged as told

SAVE = {
    "file": "train.py",
    "line": 31,
    "function": "keep",
    "text": "torch.save(state, path)",
    "share": 0.2,
    "n_looks": 80,
    "every": 0,
    "in_thirds": [0.2, 0.2, 0.2],
}


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("torch.save(state, path)", "saves a checkpoint"),
        ('torch.save(self, path + ".part")', "saves a whole object"),
        ("json.dump({k: v.tolist() for k, v in state.items()}, f)", "writes or reads JSON text"),
        ("best = copy.deepcopy(model)", "copies whole objects"),
        ("f.flush(); os.fsync(f.fileno())", "writes a log or a file"),
        ('self._log.warning("step %d", step)', "writes a log or a file"),
        ("LOG.info(row)", "writes a log or a file"),
        ("h = torch.log(x) + math.log(n)", ""),
        ("q = np.percentile(g, [1, 25, 50])", "computes numbers with NumPy"),
        ("runs = np.moveaxis(self.fields[..., idx], -1, 0)", "copies NumPy arrays into another layout"),
        ("return torch.from_numpy(np.ascontiguousarray(runs))", "copies NumPy arrays into another layout"),
        ("return torch.from_numpy(self.fields[idx])", ""),
        ("digest = hashlib.sha256(data).hexdigest()", "hashes or compresses bytes"),
        ("gc.collect()", "looks after memory"),
        ("with self.lock:", "waits for another thread or process"),
        ("time.sleep(0.01)", "sleeps"),
        ("fig.savefig(path)", "draws pictures"),
        ("x = torch.tensor([rows[i] for i in ids])", "builds tensors from Python objects"),
        ("ids = tokenizer(text)['input_ids']", "tokenises text"),
        ("subprocess.run(['nvidia-smi'])", "runs another program"),
        ("requests.post(url, json=row)", "talks to a server or a data base"),
        ("rows.append(torch.tensor(row))", "builds tensors from Python objects"),
        ("x = torch.cat((x, torch.tensor(row)))", "builds tensors from Python objects"),
        ("loss = model(torch.tensor(batch))", ""),
        ("q_values = q_network(torch.Tensor(obs).to(device))", ""),
        ("actions, _ = self.actor.get_action(torch.as_tensor(obs))", ""),
        ('self.log("train_auc", self.train_auc.compute())', "computes a metric of what it has kept so far"),
        ("acc = metrics['f1'].compute()", "computes a metric of what it has kept so far"),
        ("row = [self.train_auprc.compute(), val_spearman.compute()]", "computes a metric of what it has kept so far"),
        ('self.log("q", self.quality.compute(), prog_bar=True)', "computes a metric of what it has kept so far"),
        ("self.quality.compute()", ""),
        ("idx = self.rng.choice(self.size, n, p=p)", "draws by weights, all of which it adds up first"),
        ("i = np.random.choice(len(w), size=(n, 2), p=w / w.sum())", "draws by weights, all of which it adds up first"),
        (
            "rows = random.choices(self.rows, weights=self.weights, k=n)",
            "draws by weights, all of which it adds up first",
        ),
        ("idx = self.rng.choice(self.size, n)", ""),
        ("loss = self.score.compute(x)", ""),
        ("frame = frame.compute()", ""),
        ("force = self.acceleration.compute()", ""),
        ("self.parameters.compute()", ""),
        ("y = corrector.compute()", ""),
        ("loss.backward()", ""),
        ("h = self.conv(x) + x", ""),
        ("x = x[i]", ""),
        ("nn.utils.clip_grad_norm_(net.parameters(), 0.5)", ""),
        ("nn.utils.clip_grad_norm_(p, 0.5)", "clips the gradient of one parameter after the other"),
        ("nn.utils.clip_grad_value_([param], clip_value=1)", "clips the gradient of one parameter after the other"),
        ("clip_grad_norm_(params, 1.0)", ""),
        ("q, k, v = self.qkv(x).split(c, dim=2)", ""),
        ("x = torch.from_numpy(images[i]).float().div_(127.5)", ""),
        ("z = dist.loc + self.tok_emb(x)", ""),
        ("work.wait()", ""),
        ("score = attention_score(q, k)", ""),
    ],
)
def test_what_a_line_does_is_told_by_what_it_calls(text, does):
    found = chore_of(text)
    assert (found.does if found else "") == does


def test_each_chore_has_words_and_a_fix():
    assert len({one.does for one in CHORES}) == len(CHORES)
    assert all(one.fix and not one.fix.endswith(".") for one in CHORES)


def at_lines(*lines, long=(), **run):
    """What is told of a run that is at these lines for their shares."""
    return told(computing(long=long, profkit_run={**RUN, "n_long": 0, "lines": [*lines], **run}))


@pytest.mark.parametrize("every", [0, 4])
def test_a_line_that_has_a_fifth_of_the_run_is_the_verdict_with_its_rate(every):
    verdict, found, _ = at_lines({**SAVE, "every": every})
    rate = "every 4 steps, " if every else ""
    assert verdict.bottleneck is Bottleneck.OVERHEAD
    said = "train.py:31 in keep(): torch.save(state, path) saves a checkpoint: 20.0 % of the run"
    assert verdict.headline == rate + said
    assert verdict.recoverable_ns / verdict.step_ns == pytest.approx(0.2, rel=0.01)
    assert "async_save" in found["host.chore"].fix
    assert found["host.chore"].places[0].place.line == 31


@pytest.mark.parametrize(("n", "also"), [(2, "as does line 32 of train.py"), (3, "as do 2 other lines")])
def test_the_share_of_lines_that_do_the_same_is_not_said_of_one_of_them(n, also):
    lines = [{**SAVE, "line": 31 + k, "text": f'self.log("{k}", self.auprc{k}.compute())'} for k in range(n)]
    verdict, found, _ = at_lines(*lines)
    assert verdict.headline.endswith(f"of what it has kept so far, {also}: {n * 20}.0 % of the run")
    assert found["host.chore"].evidence[0].statement.count("train.py:3") == n


def test_tensors_turned_into_text_are_told_whatever_the_line_says_and_whoever_calls_it():
    line = {**SAVE, "text": 'seen.append(f"{pos}")', "around": ["main", "rollout"], "way": "text"}
    verdict, found, _ = at_lines(line)
    assert verdict.headline.endswith('seen.append(f"{pos}") turns tensors into text: 20.0 % of the run')
    assert "isEnabledFor" in found["host.chore"].fix
    assert "host.chore" not in at_lines({**line, "way": ""}).found


@pytest.mark.parametrize(
    "line",
    [
        {**SAVE, "share": 0.03},
        {**SAVE, "n_looks": 8},
        {**SAVE, "text": "h = F.relu(self.conv(x))"},
        {**SAVE, "text": "loss = model(torch.tensor(batch))"},
        {**SAVE, "share": 7.0},
        {**SAVE, "text": "obs = np.array(rows)", "around": ["<module>", "main", "collect_rollout"]},
    ],
)
def test_a_line_with_little_or_few_looks_or_that_trains_is_no_finding(line):
    assert "host.chore" not in at_lines(line).found


def test_what_single_stalls_are_is_said_where_the_run_shows_it():
    line = {**SAVE, "share": 0.6, "every": 4, "text": "json.dump(rows, f)"}
    verdict, found, _ = at_lines(line, long=(3, 9))
    assert verdict.bottleneck is Bottleneck.OVERHEAD
    assert "host.stall" not in found


CAT = {**SAVE, "text": "self.err = torch.cat([self.err, err])", "in_thirds": [0.08, 0.2, 0.32]}
HOOK = {
    **CAT,
    "text": "self.stats.append(o.std().item())",
    "share": 0.44,
    "n_looks": 227,
    "in_thirds": [0.3, 0.45, 0.58],
}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (CAT, "memory.recopies"),
        (HOOK, "host.slows"),
        ({**CAT, "text": "self.stats[name].append(torch.stack([dead, a.mean(), a.std()]))"}, "host.slows"),
        ({**CAT, "in_thirds": [0.18, 0.2, 0.22]}, ""),
        ({**CAT, "in_thirds": [0.08, 0.32, 0.2]}, ""),
        ({**HOOK, "in_thirds": [0.0, 0.45, 0.88]}, ""),
        ({**HOOK, "in_thirds": [0.4, 0.44, 0.48]}, ""),
        ({**CAT, "n_looks": 6}, ""),
    ],
)
def test_a_line_that_takes_more_of_each_third_of_the_run_grows(line, kind):
    verdict, found, _ = at_lines(line)
    assert {"memory.recopies", "host.slows"} & set(found) == ({kind} if kind else set())
    if kind:
        assert kind == verdict.findings[0].id
        assert 0.15 < found[kind].fraction < line["share"] + 0.01
        assert verdict.recoverable_ns / verdict.step_ns == pytest.approx(found[kind].fraction, rel=0.02)


def test_lines_that_a_trace_gives_more_than_all_of_the_run_have_all_of_it():
    found = at_lines({**SAVE, "share": 0.8}, {**SAVE, "share": 0.9, "line": 32}).found
    assert found["host.chore"].fraction == 1.0


@pytest.mark.parametrize("hooks", [[1, 10**5000], [-9, 54]])
def test_hooks_that_no_capture_counts_are_not_believed(hooks):
    assert "host.slows" not in at_lines(HOOK, hooks=hooks).found


@pytest.mark.parametrize("hooks", [[0, 0], [9, 54]])
def test_hooks_that_pile_up_are_said_where_a_line_takes_longer_with_each_step(hooks):
    verdict, found, _ = at_lines(HOOK, hooks=hooks)
    assert ("hooks of the model pile up (9 at first, 54 in the end)" in verdict.headline) is any(hooks)
    assert ("handle.remove()" in found["host.slows"].fix) is any(hooks)


def with_calls(rows, called, text, main="train.py(1): <module>"):
    """What is told of steps of which Python stacks are known, and which calls line 31 of the script makes."""
    frames = [span(main, 0, 700 * MS, cat="python_function")]
    frames.append(span("torch/profiler/p.py(1): start", 1, 2, cat="python_function"))
    return told(
        [*frames, *rows],
        profkit_call_lines={"unix_ns": called, "line": [31] * len(called)},
        profkit_source_lines={"train.py:31": text},
        profkit_user_files=["train.py"],
    )


def with_python(text="", *, python_ms, other_ms=0, operators_us=0):
    """What is told of steps that are a product, then a line of Python of the script's own."""
    called = []

    def drawn(now, _):
        work, own, length = now + 20 * MS, now + (20 + python_ms) * MS, 20 * MS // 8
        rows = [operator("aten::mm", now + k * length, now + (k + 1) * length - 1000) for k in range(8)]
        rows.append(span("train.py(30): keep", work + 10, own - 10, cat="python_function"))
        begins = range(work + 1000, own - 1000, operators_us * 1000) if operators_us else ()
        rows += [operator("aten::add", at, at + 5000) for at in begins]
        if text:
            rows.append(span("copy.py(118): deepcopy", work + 20, own - 20, cat="python_function"))
            called.append(work + 20)
        return rows

    rows = in_steps(12, (20 + python_ms + other_ms) * MS, drawn, begin_ns=10)
    return with_calls(rows, called, text)


def test_a_function_with_most_of_the_time_between_operators_is_named():
    verdict, found, _ = with_python(python_ms=10)
    assert verdict.bottleneck is Bottleneck.OVERHEAD
    assert verdict.headline.startswith("keep() (train.py:30) runs Python while no operator runs: 33.")
    assert found["host.line"].recoverable_ns == pytest.approx(10 * MS, rel=0.02)


@pytest.mark.parametrize("operators_us", [40, 400])
def test_python_between_the_many_operators_of_a_line_is_their_overhead(operators_us):
    """A call that generates text, or a loop over parameters: no Python of its own to leave out."""
    found = with_python(python_ms=10, operators_us=operators_us).found
    assert ("host.line" in found) is (operators_us == 400)


@pytest.mark.parametrize(("python_ms", "other_ms"), [(2, 0), (3, 6)])
def test_a_function_with_little_or_not_most_of_it_is_no_finding(python_ms, other_ms):
    assert "host.line" not in with_python(python_ms=python_ms, other_ms=other_ms).found


def test_a_known_chore_has_the_operators_that_it_calls_and_needs_less_of_the_window():
    found = with_python("best = copy.deepcopy(model)", python_ms=3).found
    assert found["host.line"].title == "train.py:31 in keep(): best = copy.deepcopy(model) copies whole objects"
    assert found["host.line"].fraction == pytest.approx(3 / 23, abs=0.01)


@pytest.mark.parametrize("called_by", ["torch/_tensor.py(1169): __format__", "torch/nn/modules/x.py(9): __format__"])
def test_text_of_tensors_inside_a_modules_forward_has_the_operators_that_make_it(called_by):
    called = []

    def drawn(now, _):
        rows = [operator("aten::mm", now + k * MS, now + (k + 1) * MS - 1000) for k in range(20)]
        rows.append(span("nn.Module: School_0", now, now + 25 * MS, cat="python_function"))
        rows.append(span("train.py(30): rollout", now + 10, now + 25 * MS - 10, cat="python_function"))
        rows.append(span(called_by, now + 21 * MS, now + 24 * MS, cat="python_function"))
        rows += [
            operator("aten::item", now + 21 * MS + k * 30_000, now + 21 * MS + k * 30_000 + 20_000) for k in range(99)
        ]
        called.append(now + 21 * MS)
        return rows

    text = 'track.append(f"{pos}")'
    found = with_calls(in_steps(12, 25 * MS, drawn, begin_ns=10), called, text).found
    told = [one.title for one in found.values() if one.id == "host.line"]
    assert told == [f"train.py:31 in rollout(): {text} turns tensors into text"] * ("_tensor" in called_by)
    assert not told or found["host.line"].fraction == pytest.approx(3 / 25, abs=0.01)


@pytest.mark.parametrize(
    ("text", "copying_ms"),
    [("best = copy.deepcopy(model)", 5), ("best = rank(model)", 5), ("best = copy.deepcopy(model)", 3)],
)
def test_of_a_function_a_known_chore_with_much_of_it_is_named_else_its_lines_are_shown(text, copying_ms):
    called = []

    def drawn(now, _):
        rows = [operator("aten::mm", now + k * MS, now + (k + 1) * MS - 1000) for k in range(20)]
        rows.append(span("train.py(30): keep", now + 20 * MS, now + 30 * MS, cat="python_function"))
        rows.append(span("copy.py(118): deepcopy", now + 21 * MS, now + (21 + copying_ms) * MS, cat="python_function"))
        called.append(now + 21 * MS)
        return rows

    found = with_calls(in_steps(12, 30 * MS, drawn, begin_ns=10), called, text).found["host.line"]
    is_named = "deepcopy" in text and copying_ms == 5
    assert found.title.startswith("train.py:31 in keep(): best" if is_named else "keep() (train.py:30) runs Python")
    shown = {one.place.line: one.share for one in found.places}
    assert shown[31] == pytest.approx(1.0 if is_named else copying_ms / 10, abs=0.02)


@pytest.mark.parametrize("is_trainers", [True, False])
def test_the_line_that_runs_a_trainers_whole_loop_is_no_line_beside_it(is_trainers):
    """Sampled stacks know the script's line alone: in it are the model, the backward pass and the optimizer."""
    called, trains = [], "/usr/lib/site-packages/transformers/trainer.py(5): train"

    def drawn(at, number):
        begin = at + (5 if is_trainers else 19 * MS)
        called.append(begin)
        return [
            operator("aten::linear", at + 9, at + 6 * MS, Sequence_number=number, Fwd_thread_id=0),
            operator(NODE + "AddmmBackward0", at + 7 * MS, at + 14 * MS, Sequence_number=number, Fwd_thread_id=1),
            span("Optimizer.step#AdamW.step", at + 15 * MS, at + 18 * MS),
            operator("aten::_fused_adamw_", at + 15 * MS, at + 18 * MS),
            span(trains, begin, at + 29 * MS, cat="python_function"),
        ]

    rows = in_steps(12, 30 * MS, drawn, begin_ns=10)
    found = with_calls(rows, called, "trainer.train()", main="train.py(30): main").found
    assert ("host.line" in found) is not is_trainers


def lock(line):
    """The capture's word of that line, which waits for a lock that another thread holds."""
    there = {"file": "train.py", "function": "episode", "share": 0.9}
    return {
        "waits": line,
        "thread": "collector",
        "block": {**there, "line": 80, "text": "with store.lock:"},
        "inside": {**there, "line": 34, "function": "exchange", "text": "time.sleep(self.period)"},
        "n_looks": 80,
    }


def test_a_lock_is_told_with_the_thread_that_holds_it_and_where():
    line = {**SAVE, "line": 56, "function": "sample", "text": "with self.lock:"}
    for each in (at_lines(line), at_lines(line, locks=[lock({**line, "line": 57})])):
        assert each.found["host.chore"].title.endswith("with self.lock: waits for another thread or process")
    held = at_lines(line, locks=[lock(line)]).found
    who = 'waits for the lock that the thread "collector" holds at train.py:80 in episode()'
    assert held["host.chore"].title == f"train.py:56 in sample(): with self.lock: {who}"
    assert "most often at train.py:34 in exchange()" in held["host.chore"].evidence[1].statement


@pytest.mark.parametrize(("share", "is_first"), [(0.13, True), (0.1, False)])
def test_a_chore_is_named_before_operators_that_most_programs_have_unless_these_take_far_more(share, is_first):
    copies = ((0, "contiguous"), (1000, "clone"), (2000, "copy_"))
    drawn = lambda now, _: [  # noqa: E731
        operator("aten::mm", now + 8 * MS, now + 32 * MS - 1000),
        *(operator(f"aten::{name}", now, now + 8 * MS - by) for by, name in copies),
    ]
    line = {**SAVE, "share": share, "in_thirds": [share] * 3}
    run = {**RUN, "n_long": 0, "mean_ns": 32 * MS, "lines": [line]}
    verdict, found, _ = told(in_steps(12, 32 * MS, drawn), profkit_run=run)
    assert {"host.chore", "kernel.copies"} <= set(found)
    assert ("train.py:31" in verdict.headline) is is_first
