"""How many workers a loader is advised to have, where nobody knows how many cores there are."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.input import ONCE, InputWaits, judge, measure
from profkit.capture.inside.added import busy_share
from profkit.model.code import OF_WORKERS, CodePlace, Phase, PlaceShare
from profkit.model.finding import Finding, Severity
from profkit.pipeline import analyse
from profkit.render.words.places import place_line, place_sentence
from profkit.testing import kernel, launch, operator, span, trace_of
from profkit.timeline import Facts
from profkit.timeline.code.helpers import (
    LoaderCode,
    PythonThread,
    Repeated,
    Restarts,
    Worker,
    is_by_index,
    loader_code,
    repeated,
    restarts,
    workers,
    workers_busy,
)
from tests.analyzers.test_findings import Job

US = 1000


def waiting(process: str = "SingleProcessDataLoader") -> InputWaits:
    job = Job()
    for start in job.starts:
        job.host(f"enumerate(DataLoader)#_{process}Iter.__next__", start, start + 500, "user_annotation")
        job.work("gemm_bf16", start + 510, start + 990)
    return measure(Facts.of(job.trace()))


@pytest.mark.parametrize(
    ("waited_us", "fix"),
    [
        (500, "set num_workers=2 or more (fetching takes 1.00x as long as the rest of the step)"),
        (501, "set num_workers to the cores that training leaves free"),
        (7800, "set num_workers to the cores that training leaves free"),
    ],
)
def test_no_number_of_workers_that_the_machine_may_not_have_cores_for(waited_us: int, fix: str) -> None:
    found = waiting()
    scope = replace(found.scope, window_ns=1000 * US)
    (finding,) = judge(replace(found, scope=scope, idle_ns=500 * US, waited_ns=waited_us * US))
    assert finding.fix.startswith(fix)
    assert "pin_memory=True" in finding.fix
    if waited_us == 7800:
        assert "fetching takes 15.6x as long as the rest of the step" in finding.fix
        assert "num_workers=" not in finding.fix
        assert "about 17 hide all waiting" in finding.fix


def test_equal_waits_are_said_once_and_no_step_stands_out() -> None:
    (finding,) = judge(waiting())
    said = [item.statement for item in finding.evidence]
    assert said[1] == "each step waits once, for 500 us"
    assert not any("waits longest" in one or "steps wait" in one for one in said)


def test_waits_of_several_lengths_are_a_range_and_the_step_that_stands_out_is_named() -> None:
    found = replace(waiting(), shortest_ns=100 * US, top_step_share=0.6)
    (finding,) = judge(found)
    assert finding.evidence[1].statement == "each step waits once, 100 us to 500 us"
    assert "the step that waits longest has 60.0 % of all waiting" in finding.evidence[2].statement


@pytest.mark.parametrize(("share", "n_steps", "is_once"), [(0.8, 3, True), (0.799, 3, False), (0.8, 2, False)])
def test_waiting_of_one_step_from_four_fifths_on_is_once(share: float, n_steps: int, is_once: bool) -> None:
    found = waiting()
    (finding,) = judge(replace(found, top_step_share=share, scope=replace(found.scope, n_steps=n_steps)))
    assert finding.title.endswith(ONCE) == is_once
    assert finding.confidence == (0.5 if is_once else 0.9)


def test_waits_in_some_steps_only_are_counted() -> None:
    found = replace(waiting(), is_once_a_step=False, n_steps_waiting=2, top_step_share=0.5)
    (finding,) = judge(found)
    assert "waits take" in finding.evidence[1].statement
    assert f"2 of {found.n_steps} steps wait" in finding.evidence[2].statement
    assert "waits longest" not in finding.evidence[2].statement


def test_a_wait_between_two_markers_is_one_of_the_step_before() -> None:
    """Markers of 600 us, a step each 1 ms, the loader between them."""
    rows = []
    for step in range(4):
        at = 10**9 + step * 1000 * US
        rows.append(span(f"ProfilerStep#{step}", at, at + 600 * US))
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        rows.append(span(name, at + 650 * US, at + 950 * US))
        rows += [launch(at + 10 * US, at + 12 * US, correlation=step + 1)]
        rows += [kernel("gemm_bf16", at + 20 * US, at + 590 * US, correlation=step + 1)]
    found = measure(Facts.of(trace_of(rows)))
    assert (found.n_steps_waiting, found.n_steps, found.is_once_a_step) == (3, 4, False)


def test_what_the_script_marked_itself_is_not_called_a_dataloader() -> None:
    (finding,) = judge(replace(waiting(), loader="custom"))
    assert finding.title == "the step waits for its input"
    assert "DataLoader" not in finding.evidence[0].statement


IMAGES = {"name": "main.<locals>.Images.__getitem__", "file": "app/data.py", "line": 12}
PADDED = {"name": "pad", "file": "app/data.py", "line": 40}


def told(*loaders: object, fetch_ns: object = 122 * US * 1000) -> str:
    metadata = {"profkit_loaders": list(loaders), "profkit_worker_fetch_ns": fetch_ns}
    return loader_code(trace_of([span("ProfilerStep#1", 0, 9)], **metadata)).words


def test_the_code_that_workers_run_is_named_with_the_time_of_a_batch() -> None:
    """Where the steps took batches of one loader with workers: of two it is not known which one they waited for."""
    one = {"n_workers": 2, "dataset": IMAGES, "collate": PADDED}
    assert told(one) == (
        "they run Images.__getitem__() (app/data.py:12) and pad() (app/data.py:40), one of them takes 122 ms for a"
        " batch (median)"
    )
    assert told(one, {"n_workers": 0, "dataset": PADDED}) == told(one), "the other has no workers"
    assert told({"n_workers": 2}) == "one of them takes 122 ms for a batch (median)"
    assert told({"n_workers": 2, "dataset": IMAGES}, fetch_ns=None) == "they run Images.__getitem__() (app/data.py:12)"
    assert told(one, {"n_workers": 1, "dataset": PADDED}) == ""
    assert told({"n_workers": 0, "dataset": IMAGES}) == ""


@pytest.mark.parametrize("hostile", [7, "x", {"n_workers": True}, {"n_workers": 2, "dataset": {"name": 1, "file": []}}])
def test_what_is_no_loader_is_passed_over(hostile: object) -> None:
    assert told(hostile, fetch_ns=-1) == ""


def test_only_of_workers_it_is_said_what_they_run() -> None:
    code = LoaderCode(reads="Images.__getitem__() (app/data.py:12)")
    said = [
        judge(replace(waiting(process), code=code))[0].evidence[2].statement
        for process in ("MultiProcessingDataLoader", "SingleProcessDataLoader")
    ]
    assert "do not keep up: they run Images.__getitem__() (app/data.py:12)" in said[0]
    assert "Images" not in said[1]


DECODED = {"file": "app/data.py", "function": "__getitem__", "defined": 12, "line": 17, "text": "image = decode(path)",
           "call": "", "ns": 84_000_000, "n_looks": 42}  # fmt: skip
READ = {**DECODED, "line": 14, "text": "", "call": "open_image()", "ns": 15_500_000, "n_looks": 8}
SEEN = {"fetch_ns": 101_000_000, "seen_ns": 10**8, "n_workers": 2, "n_batches": 4, "n_looks": 50,
        "lines": [READ, {**DECODED, "line": 13, "ns": 400_000, "n_looks": 1}, DECODED]}  # fmt: skip


def starved(process: str = "MultiProcessingDataLoader", **told: object) -> tuple[PlaceShare, ...]:
    """The places of a step that waits for a loader, with frames of the thread that waits."""
    job = Job()
    for start in job.starts:
        job.host("train.py(9): <module>", start, start + 999, "python_function")
        job.host(f"enumerate(DataLoader)#_{process}Iter.__next__", start, start + 500, "user_annotation")
        job.work("gemm_bf16", start + 510, start + 990)
    metadata = {"profkit_loaders": [{"n_workers": 2, "dataset": IMAGES}], **told}
    trace = job.trace()
    trace = replace(trace, meta=replace(trace.meta, metadata=metadata))
    return next(one for one in analyse(trace).rank.findings if one.id == "input.starved").places


def test_the_lines_that_workers_spend_their_time_on_come_before_the_one_that_waits() -> None:
    first, second, waits = starved(profkit_worker_lines=SEEN)
    assert first.place.name == "app/data.py:17 in __getitem__()"
    assert (first.share, first.of, first.ns, first.count) == (0.84, OF_WORKERS, 84_000_000, 42)
    assert second.place.words == "app/data.py:14 in __getitem__() calling open_image()"
    assert (waits.place.function, waits.of) == ("<module>", "")
    given = {"severity": Severity.HIGH, "confidence": 1, "recoverable_ns": 0, "fraction": 0.5, "fix": ""}
    evidence = judge(waiting())[0].evidence
    finding = Finding(id="input.starved", title="", evidence=evidence, places=(first, waits), **given)
    assert place_sentence(finding) == (
        "84.0 % of the loader workers' time is in app/data.py:17 in __getitem__(): image = decode(path)"
    )
    assert place_line(waits).startswith("100.0 %  train.py")


def test_a_line_of_workers_that_makes_two_calls_is_told_once() -> None:
    again = {**READ, "text": "image = open_image(path)", "line": 14}
    lines = [{**again, "call": "open_image()", "ns": 3 * 10**7}, {**again, "call": "", "ns": 2 * 10**7, "n_looks": 10}]
    first, waits = starved(profkit_worker_lines={**SEEN, "lines": lines})
    assert (first.share, first.ns, first.count) == (0.5, 5 * 10**7, READ["n_looks"] + 10)
    assert waits.place.function == "<module>"


def test_where_several_lines_of_workers_may_be_it_their_function_is_told() -> None:
    one = {**DECODED, "line": 0, "text": "", "call": ""}
    first, _ = starved(profkit_worker_lines={**SEEN, "lines": [one]})
    assert first.words == f"__getitem__() (app/data.py:{DECODED['defined']})"


@pytest.mark.parametrize(
    "told",
    [{}, {"profkit_worker_lines": 7}, {"profkit_worker_lines": {**SEEN, "n_looks": 19}},
     {"profkit_worker_lines": {**SEEN, "seen_ns": True}}, {"profkit_worker_lines": {**SEEN, "lines": [7, {}]}},
     {"profkit_worker_lines": {**SEEN, "lines": [{**DECODED, "line": "x"}, {**DECODED, "file": None}]}},
     {"profkit_worker_lines": SEEN, "profkit_loaders": [{"n_workers": 1}, {"n_workers": 1}]}],
    ids=["no capture", "no lines", "few looks", "no time", "no line", "no texts", "two loaders"],
)  # fmt: skip
def test_of_workers_that_nobody_looked_at_enough_no_line_is_told(told: dict[str, object]) -> None:
    assert [one.place.function for one in starved(**told)] == ["<module>"]


def test_lines_of_workers_are_no_cause_of_a_wait_for_a_loader_without_them() -> None:
    assert [one.of for one in starved("SingleProcessDataLoader", profkit_worker_lines=SEEN)] == [""]


def handed(busy: float | None, *, shortest_ns: int = 480 * US, is_cpu: bool = True) -> tuple[Finding, ...]:
    found = waiting("MultiProcessingDataLoader")
    scope = replace(found.scope, is_cpu=is_cpu)
    return judge(replace(found, scope=scope, workers_busy=busy, shortest_ns=shortest_ns))


def test_a_step_that_takes_over_ready_batches_is_not_starved() -> None:
    assert handed(0.6) == ()
    assert handed(None)
    assert handed(0.99)[0].evidence[2].statement.startswith("the worker processes of the DataLoader do not keep up")
    assert handed(0.6, is_cpu=False), "what a GPU idles for a batch is lost to it, however ready that is"


def taken_over(n: int, *, since: int = 0) -> tuple[Finding, ...]:
    """Ten steps of 100 us that wait 40 us each for a batch of so many tensors, which is there after a part of these."""
    rows = []
    for number in range(10):
        begin = number * 100 * US
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        rows += [span(f"ProfilerStep#{number}", begin, begin + 100 * US), span(name, begin, begin + 40 * US)]
        apart = (39 * US - since) // n
        rows += [operator("aten::set_", at, at + 100) for at in range(begin + since, begin + since + n * apart, apart)]
        rows.append(operator("aten::mm", begin + 41 * US, begin + 99 * US))
    loaders = [{"n_workers": 1, "collate": {"name": "Batch.collate", "file": "train.py", "line": 7}}]
    found = measure(Facts.of(trace_of(rows, profkit_workers_busy=0.2, profkit_loaders=loaders)))
    assert isinstance(found, InputWaits)
    return judge(found)


def test_a_batch_of_many_tensors_is_named_by_their_number_and_the_function_that_collates() -> None:
    (finding,) = taken_over(256)
    assert finding.title == "the step waits for its DataLoader to hand over 256 tensors for each batch"
    assert "takes over its 256 tensors one by one, 151 ns for each" in finding.evidence[2].statement
    assert finding.fix.startswith("pad or stack in collate_fn, Batch.collate() (train.py:7), in the worker")
    assert finding.recoverable_ns == pytest.approx(40 * US, rel=0.05)


@pytest.mark.parametrize(("n", "since"), [(4, 0), (31, 0), (256, 30 * US)])
def test_a_batch_of_few_tensors_and_one_that_is_late_are_not_handed_over_in_pieces(n: int, since: int) -> None:
    assert not any("hand over" in one.title or "stack in collate_fn" in one.fix for one in taken_over(n, since=since))


def test_late_batches_of_workers_that_keep_up_starve_the_step() -> None:
    (finding,) = handed(0.6, shortest_ns=100 * US)
    assert "fetch for 60.0 % of their time: some batches come late" in finding.evidence[2].statement


@pytest.mark.parametrize(
    ("value", "busy"), [(0.6, 0.6), (1, 1.0), (True, None), ("0.5", None), (1.5, None), (-1, None)]
)
def test_the_share_of_fetching_is_one_or_nothing(value: object, busy: float | None) -> None:
    assert workers_busy(trace_of([span("ProfilerStep#1", 0, 9)], profkit_workers_busy=value)) == busy


def test_workers_fetch_from_one_start_to_the_last() -> None:
    one = [(7, 0, 0, 60, 8), (7, 0, 100, 160, 8), (7, 0, 200, 260, 8)]
    other = [(8, 1, 10, 100, 8), (8, 1, 110, 200, 8)]
    assert busy_share(one) == 0.6
    assert busy_share([*one, *other]) == 0.75
    assert busy_share([]) is busy_share(one[:1]) is None


def of_workers(**told: object) -> InputWaits:
    return replace(waiting("MultiProcessingDataLoader"), **told)


def test_one_slow_worker_is_named_and_no_more_of_them_are_advised() -> None:
    usual = tuple(Worker(number, 3, 5_000_000) for number in (0, 1, 3))
    found = of_workers(workers=(*usual, Worker(2, 3, 104_000_000)), workers_busy=0.3)
    (finding,) = judge(found)
    assert finding.title == "the step waits for one slow worker of its DataLoader, number 2"
    assert "worker 2 takes 104 ms for a batch, the others 5.00 ms at most" in finding.evidence[2].statement
    assert "use more workers" not in finding.fix
    (once,) = judge(replace(found, workers=(*usual, Worker(2, 1, 104_000_000))))
    assert once.title == "the step waits for its DataLoader", "one batch may as well hold a slow sample"
    (alike,) = judge(replace(found, workers=(*usual, Worker(2, 3, 9_000_000))))
    assert "slow worker" not in alike.title


@pytest.mark.parametrize(
    ("busy", "own", "is_advised"), [(0.07, 0.4, False), (0.99, 0.95, False), (0.99, 0.5, True), (None, None, True)]
)
def test_more_workers_only_where_they_are_busy_and_cores_are_free(
    busy: float | None, own: float | None, is_advised: bool
) -> None:
    (finding,) = judge(of_workers(workers_busy=busy, own_share=own))
    assert finding.fix.startswith("use more workers") == is_advised
    assert is_advised or "more workers do not help" in finding.fix or "more workers help little" in finding.fix


@pytest.mark.parametrize(("quota", "share"), [({}, 0.05), ({"quota_millicores": 2000}, 0.4)])
def test_cores_that_a_container_may_not_use_are_not_free(quota: dict[str, int], share: float) -> None:
    told = {"span_ns": 100, "all_run_ns": 30, "children": 2, "children_run_ns": 50, "cores": 16, "ranks": 1, **quota}
    rows = [span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 10, 500)]
    found = measure(Facts.of(trace_of([*rows, span("ProfilerStep#1", 1, 1000)], profkit_scheduling=told)))
    assert found.own_share == pytest.approx(share)


def test_workers_too_slow_for_the_step_do_not_keep_up_whatever_share_of_their_time_they_fetch() -> None:
    found = of_workers(workers_busy=0.6, own_share=0.3, workers=(Worker(0, 9, 500 * US), Worker(1, 9, 500 * US)))
    left_ns = found.scope.window_ns - found.waited_ns
    short = replace(found, code=LoaderCode(fetch_ns=2 * left_ns // found.n_waits))
    (finding,) = judge(short)
    assert finding.evidence[2].statement.startswith("the worker processes of the DataLoader do not keep up")
    assert finding.fix.startswith("use more workers: the job runs on 30.0 % of the cores' time")
    assert "if cores are free" in judge(replace(short, is_crowded=True))[0].fix
    (quick,) = judge(replace(short, code=LoaderCode(fetch_ns=left_ns // found.n_waits)))
    assert "more workers help little, they fetch for 60.0 % of their time" in quick.fix
    (crowded,) = judge(replace(short, code=LoaderCode(fetch_ns=left_ns // found.n_waits), is_crowded=True))
    assert crowded.confidence < 0.6 < quick.confidence
    assert crowded.fix.startswith("measure again on cores that nothing else uses")


def at(text: str, *, function: str = "__getitem__", share: float = 0.6) -> PlaceShare:
    place = CodePlace(file="train.py", function=function, line=9, text=text)
    return PlaceShare(place=place, phase=Phase.OTHER, ns=1, share=share, count=9)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("records = json.load(f)", "load a file that several items share once"),
        ("row = self.table.iloc[i]", "turn the table into arrays or tensors once"),
        ("ids = self.tokenizer(text)", "tokenise once, before the training"),
        ("x = self.payload(i)", "set num_workers"),
        ("self.load(i)", "set num_workers"),
        ("with np.load(self.paths[i]) as z:", "set num_workers"),
        ("raw = path.read_bytes()", "set num_workers"),
    ],
)
def test_what_the_longest_line_does_comes_first_in_what_to_do(text: str, fix: str) -> None:
    (finding,) = judge(replace(waiting(), host_lines=(at(text),)))
    assert finding.fix.startswith(fix)
    assert "set num_workers" in finding.fix
    (short,) = judge(replace(waiting(), host_lines=(at(text, share=0.2),)))
    assert short.fix.startswith("set num_workers")


def test_workers_do_not_take_over_what_a_sampler_does() -> None:
    lines = (at("p = [w / total for w in self.w]", function="__iter__", share=0.4), at("yield p", function="__iter__"))
    (finding,) = judge(replace(waiting(), host_lines=lines, is_by_index=True))
    assert finding.fix.startswith("make the sampler cheaper: it has 100.0 % of this time, in the training process")
    (unknown,) = judge(replace(waiting(), host_lines=lines))
    assert unknown.fix.startswith("set num_workers"), "it may be an iterable dataset"


def test_batches_become_cheaper_at_the_line_that_takes_most_of_the_time() -> None:
    line = replace(at("noise = np.random.normal(0, 0.02, img.shape)"), of=OF_WORKERS)
    told = of_workers(workers_busy=0.99, own_share=0.9, code=LoaderCode(lines=(line,)))
    fix = "make batches cheaper: train.py:9 in __getitem__() first, which has 60.0 % of that time; more workers do not"
    assert judge(told)[0].fix.startswith(fix)
    loop = replace(told, code=LoaderCode(), host_lines=(at("for x, y in loader:", function="main"),))
    assert judge(loop)[0].fix.startswith("make batches cheaper: cached decoding, larger sequential reads, GPU")


def test_the_line_that_waits_for_workers_says_nothing_of_what_makes_the_batch() -> None:
    waits = replace(at("batch = next(self.data_iter)", function="next"), share=1.0)
    (finding,) = judge(of_workers(workers_busy=0.99, own_share=0.5, host_lines=(waits,)))
    assert finding.fix.startswith("use more workers")


def test_the_function_that_trains_says_nothing_of_what_makes_the_batch() -> None:
    place = CodePlace(file="train.py", function="train", defined=92)
    whole = PlaceShare(place=place, phase=Phase.OTHER, ns=1, share=0.9, count=9)
    told = replace(waiting(), host_lines=(whole,))
    assert judge(told)[0].fix.startswith("train() (train.py:92) first")
    assert judge(replace(told, training=frozenset({("train.py", "train")})))[0].fix.startswith("set num_workers")


def streamed(*counts: tuple[int, int, int], n_workers: int = 2) -> Repeated | None:
    """Of 64 samples in 100 us: lines with their runs, the samples given there, and us."""
    place = {"file": "t.py", "function": "__iter__", "defined": 1, "text": "", "call": ""}
    lines = [
        {**place, "line": number, "runs": runs, "given": given, "ns": us * US}
        for number, (runs, given, us) in enumerate(counts, 2)
    ]
    told = {"n_samples": 64, "ns": 100 * US, "n_workers": n_workers, "lines": lines}
    return repeated(trace_of([span("ProfilerStep#1", 0, 9)], profkit_worker_lines={"stream": told}))


def test_a_stream_that_each_worker_decodes_whole_is_named_with_its_line() -> None:
    found = streamed((4, 0, 5), (129, 0, 10), (128, 0, 60), (64, 64, 20), (128, 0, 3))
    assert (found.place.line, found.times, found.n_workers) == (4, 2.0, 2)
    assert found.share == pytest.approx(0.73)
    (finding,) = judge(of_workers(repeated=found))
    assert finding.fix.startswith("divide files or records among the workers before")
    assert "t.py:4 in __iter__() runs 2.0 times for each sample that a worker gives" in finding.evidence[2].statement
    whole = of_workers(repeated=found)
    scope = whole.scope
    all_of_it = replace(whole, gain_ns=scope.window_ns // 2)
    assert all_of_it.saved_ns == round(scope.window_ns * 0.73 / 2), "of two workers, each makes half too much"
    (part,) = judge(replace(all_of_it, own_share=0.95, workers_cores=0.6))
    assert part.recoverable_ns == scope.per_step(round(scope.window_ns * 0.73 / 2 * 0.6)), "no core was free"
    assert part.most_recoverable_ns == scope.per_step(all_of_it.gain_ns)
    (small,) = judge(of_workers(repeated=replace(found, share=0.1)))
    assert not small.fix.startswith("divide")
    assert streamed((128, 128, 90)) is not None, "a generator whose samples islice drops"


@pytest.mark.parametrize(
    "counts",
    [
        [(4, 0, 5), (65, 0, 70), (64, 64, 20)],
        [(65, 0, 10), (128, 0, 70), (64, 64, 20)],
        [(250, 0, 70), (64, 64, 20)],
        [(64, 64, 90)],
        [],
    ],
    ids=["divided before", "two halves of a sample", "most are left out", "one line", "nothing"],
)
def test_what_a_worker_does_for_its_own_samples_is_no_repetition(counts: list[tuple[int, int, int]]) -> None:
    assert streamed(*counts) is None


@pytest.mark.parametrize(
    ("reads", "is_known"),
    [(("Rows.__getitem__",), True), (("Rows.__iter__",), False), ((), False), (("A.__getitem__", "B.__iter__"), False)],
)
def test_a_dataset_is_read_by_index_where_the_capture_says_so(reads: tuple[str, ...], is_known: bool) -> None:
    told = [{"n_workers": 0, "dataset": {"name": name, "file": "t.py", "line": 3}} for name in reads]
    assert is_by_index(trace_of([span("ProfilerStep#1", 0, 9)], profkit_loaders=told)) is is_known


@pytest.mark.parametrize("run_ns", [1000, 10**9])
def test_a_thread_that_makes_the_batches_is_named(run_ns: int) -> None:
    feeder = PythonThread(name="Feeder", run_ns=run_ns, wait_ns=0, awaited_ns=5)
    (finding,) = judge(replace(waiting(), loader="thread", feeders=(feeder,)))
    assert finding.title == 'the step waits for the thread "Feeder", which makes its batches'
    assert finding.fix.startswith("let several threads" if run_ns == 1000 else "make the batches in processes")
    (unknown,) = judge(replace(waiting(), loader="thread"))
    assert "another thread of this process makes the batches" in unknown.evidence[2].statement


def test_workers_that_are_started_in_each_epoch_are_the_cause_of_the_waits() -> None:
    told = Restarts(n_workers=2, n=3, ns=180_000_000, n_batches=30, is_rebuilt=False)
    found = of_workers(restarts=told, step_ns=10_000_000, usual_step_ns=5_000_000)
    one = next(one for one in judge(found) if one.id == "input.restarted")
    assert one.fraction == pytest.approx(6 / 11)
    assert one.recoverable_ns == round(10_000_000 * 6 / 11)
    assert one.fix.startswith("persistent_workers=True")
    rebuilt = judge(replace(found, restarts=replace(told, is_rebuilt=True)))[-1]
    assert rebuilt.fix.startswith("build the DataLoader once")
    validation = judge(replace(found, restarts=replace(told, n_steps=180)))[-1]
    assert validation.recoverable_ns == round(10_000_000 * 1 / 6), "60 ms every 60 steps"
    assert validation.fix == one.fix
    look = judge(replace(found, restarts=replace(told, n_steps=180, n_batches=3)))[-1]
    assert look.recoverable_ns == validation.recoverable_ns
    assert look.title.endswith("are started anew every 60 steps")
    assert look.fix.startswith("keep what the loop takes of it")
    for other in (replace(told, n=1), replace(told, ns=1_000_000), None):
        assert "input.restarted" not in {each.id for each in judge(replace(found, restarts=other))}


@pytest.mark.parametrize("hostile", [7, "x", [7], [{"worker": "a", "n": -1, "ns": True}], [{"starts": 10**30}]])
def test_what_no_capture_writes_of_workers_is_passed_over(hostile: object) -> None:
    trace = trace_of([span("ProfilerStep#1", 0, 9)], profkit_workers=hostile, profkit_worker_starts=hostile)
    assert (workers(trace), restarts(trace)) == ((), None)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('self.cache[s] = (z["images"], z["points"])', "is the same file read or decompressed again"),
        ("time.sleep(0.002)", "it waits and does not compute"),
        ("img = np.power(img * gain, gamma)", "compute only what the batch keeps"),
    ],
)
def test_a_line_with_nearly_all_of_the_time_comes_before_workers(text: str, what: str) -> None:
    lines = (replace(at(text, share=0.9), of=OF_WORKERS),)
    (finding,) = judge(of_workers(workers_busy=0.99, own_share=0.3, code=LoaderCode(lines=lines)))
    assert finding.fix.startswith("train.py:9 in __getitem__() first, which has 90.0 % of that time: " + what)
    assert finding.fix.endswith("more workers second")
    (most,) = judge(
        of_workers(workers_busy=0.99, own_share=0.3, code=LoaderCode(lines=(replace(lines[0], share=0.7),)))
    )
    assert most.fix.startswith("use more workers")
    (own,) = judge(replace(waiting(), host_lines=(at(text, share=0.9),)))
    assert what in own.fix
    assert own.fix.endswith("(num_workers) second")


def test_more_workers_wait_longer_for_a_lock() -> None:
    line = replace(at("with self.lock:", share=0.5), of=OF_WORKERS)
    (finding,) = judge(of_workers(workers_busy=0.99, own_share=0.3, code=LoaderCode(lines=(line,))))
    assert finding.fix.startswith("hold the lock of train.py:9 in __getitem__() for less")
