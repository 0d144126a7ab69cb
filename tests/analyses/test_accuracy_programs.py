"""The programs of the accuracy benchmark: their pathologies can be turned off, and labels are right by arithmetic."""

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from analyses.accuracy import reports, run
from analyses.accuracy.cell import CellResult, Said
from analyses.accuracy.cells import QUICK, Cell, cells
from analyses.accuracy.label import Times, blocks, label, of_pairs, pairs
from analyses.accuracy.program import PREFETCHED
from analyses.accuracy.programs.loop import Plan, is_on, loader, train
from analyses.accuracy.programs.pathologies.base import Pathology
from analyses.accuracy.programs.pathologies.decoys import Rare
from analyses.accuracy.programs.pathologies.host import OptimizerLoop, TinyOps
from analyses.accuracy.programs.pathologies.loading import Jitter, RareItems, Serial
from analyses.accuracy.programs.registry import FAMILIES, PATHOLOGIES, SHARES
from analyses.accuracy.programs.switch import Switch
from analyses.accuracy.run import done_keys, halves, is_wrong, program, told
from profkit.capture.options import STEPS_OF_SHORT, Options, window_for
from profkit.findings import KINDS
from profkit.model.documents.report import Bottleneck

ALONE = [name for name, family in FAMILIES.items() if family.n_ranks == 1]
_SLOW = ("workers", "rare_items", "hidden_loader", "threads")
QUIET = [name for name in PATHOLOGIES if not any(part in name for part in _SLOW)]

SLOW_LINK = Cell(family="ddp", pathology="slow_link", dose="large")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class TinyFamily(FAMILIES["mlp"]):
    """A perceptron whose step takes next to no time."""

    batch_size = 4
    width = 8
    n_samples = 32


def trained(kind, *, share=0.2, step_s=1e-4, n_steps=4, block=0, family=None):
    family = family or TinyFamily(0)
    pathology = kind(share, step_s, Switch())
    plan = Plan(n_steps=n_steps, block=block)
    with pathology.around():
        model = family.spread(pathology.dressed(family.model()))
        pathology.spread(model)
        ends_ns = train(family, model, loader(family, pathology, plan.batches(family)), pathology, plan)
    return pathology, model, ends_ns


def drawn(on_ms, off_ms, *, block=20, skipped=2, n_blocks=12, ripple=0.0, seed=0):
    """Times of a label run whose steps are so long, and twice that just after each change."""
    draw, now, ends = random.Random(seed), 0, []  # noqa: S311 - times need a seed, not a secret
    for number in range(block * n_blocks):
        at = number % block
        step_ms = on_ms if is_on(number // block) else off_ms
        now += round(1e6 * step_ms * (2 if at < skipped else 1) * (1 + ripple * draw.uniform(-1, 1)))
        ends.append(now)
    return Times(ends_ns=ends, block=block, skipped=skipped)


def test_blocks_alternate_so_that_a_drift_falls_on_both_sides_alike():
    assert [is_on(block) for block in range(8)] == [True, False, False, True] * 2


@pytest.mark.parametrize(("on_ms", "off_ms"), [(20.0, 15.0), (20.0, 20.0), (30.0, 31.0)])
def test_a_label_is_the_share_that_steps_are_shorter_without_the_pathology(on_ms, off_ms):
    found = label(drawn(on_ms, off_ms))
    assert found.gain == pytest.approx(1 - off_ms / on_ms)
    assert found.gain_interval == pytest.approx((found.gain, found.gain))
    assert (found.step_on_ns, found.step_off_ns) == pytest.approx((1e6 * on_ms, 1e6 * off_ms))
    assert found.n_blocks == 12


def test_the_steps_after_a_change_are_left_out():
    times = drawn(20.0, 10.0, skipped=5)
    assert blocks(times) == pytest.approx([1e6 * (20.0 if is_on(block) else 10.0) for block in range(12)])
    assert blocks(msgspec.structs.replace(times, skipped=2))[0] == pytest.approx(1e6 * (3 * 40 + 15 * 20) / 18)
    with pytest.raises(ValueError, match="leave none"):
        blocks(msgspec.structs.replace(times, skipped=20))


def test_a_label_covers_the_truth_as_often_as_it_says():
    truth = 1 - 15.0 / 20.0
    found = [label(drawn(20.0, 15.0, ripple=0.5, seed=seed)) for seed in range(200)]
    n_held = sum(one.gain_interval[0] <= truth <= one.gain_interval[1] for one in found)
    assert 0.9 <= n_held / len(found) <= 0.99


def test_fresh_runs_that_take_turns_are_labelled_as_blocks_are():
    found = of_pairs(pairs([20.0, 15.0, 15.0, 20.0]))
    assert (found.gain, found.n_blocks) == (pytest.approx(0.25), 4)
    one, other = (" ".join(program(SLOW_LINK, 30, has_rate=has_rate)) for has_rate in (True, False))
    assert "workloads.netlab --rate 250mbit --slow both -- -m analyses.accuracy.program --family ddp" in one
    assert one.replace("both", "none") == other


def test_a_label_from_both_sides_of_a_recording_has_what_changed_meanwhile_in_its_interval():
    one, other = drawn(20.0, 16.0, n_blocks=6), drawn(30.0, 20.0, n_blocks=6)
    found = label(one, other)
    assert found.n_blocks == 12
    assert found.gain == pytest.approx(1 - 36 / 50), "of all the time, not the mean of two gains"
    low, high = found.gain_interval
    assert high - low > 0.08, "one run alone has an interval of nothing"


@pytest.mark.parametrize(("n_blocks", "sides"), [(12, (6, 6)), (8, (4, 4)), (6, (4, 2))])
def test_both_sides_of_a_recording_have_whole_pairs(n_blocks, sides):
    assert halves(n_blocks) == sides


def test_one_pair_of_blocks_has_no_interval():
    assert label(drawn(20.0, 15.0, n_blocks=2)).gain_interval is None


@pytest.mark.parametrize("name", ALONE)
def test_losses_of_a_family_are_finite_and_weights_move(name):
    family = FAMILIES[name](3)
    model = family.model()
    before = [values.detach().clone() for values in model.parameters()]
    plan = Plan(n_steps=2)
    pathology = Pathology(0.0, 0.0, Switch())
    train(family, model, loader(family, pathology, plan.batches(family)), pathology, plan)
    loss = family.loss(model, family.fetched(range(family.batch_size)))
    assert loss.isfinite()
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("name", [name for name in QUIET if PATHOLOGIES[name].families != ("ddp",)])
def test_a_pathology_runs_is_turned_off_and_leaves_the_loss_finite(name):
    family = FAMILIES["rnn"](0) if name == "padding" else TinyFamily(0)
    pathology, model, ends_ns = trained(PATHOLOGIES[name], n_steps=4, block=2, family=family)
    assert not pathology.is_on, "a block to warm up and one with it are over"
    assert len(ends_ns) == 4
    assert family.loss(model, family.fetched(range(4))).isfinite()


def test_a_cost_is_paid_only_while_the_switch_is_on_and_the_dose_is_not_zero():
    pathology = Serial(0.5, 0.02, Switch())
    assert pathology.cost_s == pytest.approx(0.02)
    for wanted_s in (0.02, 0.0):
        pathology.switch.set(is_on=wanted_s > 0)
        begin = time.perf_counter()
        pathology.fetching([0])
        spent_s = time.perf_counter() - begin
        assert (spent_s >= wanted_s) if wanted_s else (spent_s < 0.01)
    assert not Serial(0.0, 0.02, Switch()).is_on


def test_workers_see_the_switch():
    family, pathology = TinyFamily(0), PATHOLOGIES["loader_workers_too_few"](0.5, 0.1, Switch(is_on=False))
    begin = time.perf_counter()
    batches = iter(loader(family, pathology, Plan(n_steps=12).batches(family)))
    next(batches)
    pathology.switch.set(is_on=True)
    for _ in batches:
        pass
    assert time.perf_counter() - begin > 5 * 0.2, "the batches behind those prefetched take 0.2 s each"


def test_tiny_operators_are_gone_while_the_pathology_is_off():
    pathology = TinyOps(0.45, 0.02, Switch())
    model = pathology.dressed(nn.Linear(4, 4))
    counts = []
    for wanted in (True, False):
        pathology.switch.set(is_on=wanted)
        with torch.profiler.profile() as seen:
            model(torch.zeros(2, 4))
        counts.append(Counter(event.name for event in seen.events())["aten::relu"])
    assert counts == [model.n_rounds, 0]


def test_the_optimizer_is_fused_while_the_pathology_is_off():
    pathology = OptimizerLoop(0.45, 0.002, Switch())
    model = pathology.dressed(nn.Linear(64, 4))
    optimizer = pathology.optimizer(model)
    calls = []
    for wanted in (True, False):
        pathology.switch.set(is_on=wanted)
        optimizer.zero_grad()
        model(torch.ones(2, 64)).sum().backward()
        with torch.profiler.profile() as seen:
            optimizer.step()
        calls.append(Counter(event.name for event in seen.events()))
    assert calls[0]["aten::addcdiv_"] >= len(model.vectors)
    assert calls[1]["aten::addcdiv_"] == 0
    assert calls[1]["aten::_fused_adamw_"] == 2


def test_threads_go_back_to_one_while_the_pathology_is_off():
    pathology, counts = PATHOLOGIES["threads"](0.05, 0.02, Switch()), []
    for wanted in (True, False):
        pathology.switch.set(is_on=wanted)
        pathology.before_forward(0, ())
        counts.append(torch.get_num_threads())
    assert counts == [3, 1]


def test_a_rare_step_lies_in_the_window_that_is_recorded():
    window = window_for(Options(folder="x"), n_workers=0, n_queued=0)
    first = window.settling + window.baseline + 1 + window.warmup
    assert first <= Rare.offset < first + STEPS_OF_SHORT


def test_every_fourth_batch_of_rare_items_is_slow_in_any_stretch(monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", lambda _: slept.append(rare.n_fetched))
    rare = RareItems(0.2, 0.02, Switch())
    for number in range(1, 13):
        rare.fetching([number])
    assert slept == [4, 8, 12]
    n_left_out = (PREFETCHED + 1) * rare.n_workers + 2
    assert (RareItems.block - n_left_out) % rare.one_in == 0, "as many of them in each block as is measured"


def test_jitter_keeps_the_mean_size_of_a_batch():
    jitter = Jitter(0.45, 0.02, Switch())
    sizes = [len(jitter.chosen([first, *range(99)])) for first in range(505)]
    assert sum(sizes) / len(sizes) == pytest.approx(100, abs=1)
    assert min(sizes) < 30
    assert max(sizes) > 170


def test_blocks_see_the_same_batches():
    batches = Plan(n_steps=8, block=4, seed=1, period=4).batches(TinyFamily(0))
    assert batches[:4] == batches[4:]
    assert batches != Plan(n_steps=8, block=4, seed=2, period=4).batches(TinyFamily(0))


def test_cells_have_unique_keys_and_cover_every_family_and_pathology():
    listed = cells()
    assert len({cell.key for cell in listed}) == len(listed) >= 200
    assert {cell.family for cell in listed} == set(FAMILIES)
    assert {cell.pathology for cell in listed} == set(PATHOLOGIES)
    assert cells() == listed, "the order is drawn from a seed"
    assert len({cell.pathology for cell in listed[:QUICK]}) > 0.6 * QUICK
    assert {cell.row().kind for cell in listed[:QUICK]} == {"fault", "decoy", "healthy"}
    half = Counter(cell.pathology for cell in listed[: len(listed) // 2])
    for name, n in Counter(cell.pathology for cell in listed).items():
        assert abs(half[name] - n / 2) <= 1.5


def test_a_row_says_what_is_right_in_profkits_words():
    for cell in cells():
        row = cell.row()
        assert row.key == cell.key
        assert {row.expected, *row.base.split("|")} <= set(Bottleneck)
        assert row.expected_finding in {"", *KINDS}
        assert row.kind in {"fault", "decoy", "healthy"}
        assert set(cell.flags()[1::2]) == {cell.family, cell.pathology, cell.dose, str(cell.seed)}
        assert cell.dose in SHARES


def test_a_report_becomes_what_was_said():
    verdict = {"bottleneck": "data-bound", "confidence": 0.8, "headline": "It waits", "step_ns": 200, "rank": 1}
    found = {"id": "input.starved", "recoverable_ns": 40}
    quality = {"id": "capture.quality", "recoverable_ns": 0}
    report = {"verdict": {**verdict, "recoverable_ns": 50, "speedup_ceiling": 4 / 3}, "findings": [quality, found]}
    heard = reports.said(report)
    assert heard.gain == pytest.approx(0.25)
    assert (heard.finding_ids, heard.classes) == (("input.starved",), ("data-bound",))
    assert heard.finding_gains == pytest.approx((0.2,))
    report["verdict"] |= {"speedup_ceiling": None, "step_ns": None}
    assert reports.said(report).gain is None


def test_a_cell_whose_run_leaves_nothing_behind_is_a_row_with_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "program", lambda *_, **__: [sys.executable, "-c", "pass"])
    row = run.measured(Cell(family="mlp", pathology="gc", dose="small"), tmp_path)
    assert "times.json" in row.error
    assert (row.key, row.gain, row.tools) == ("mlp/gc/small/0", None, {})
    monkeypatch.setattr(run, "program", lambda *_, **__: [sys.executable, "-c", "raise SystemExit('no core')"])
    assert "no core" in run.measured(Cell(family="mlp", pathology="gc", dose="small"), tmp_path).error


def test_the_slope_at_the_pathologys_place_is_kept(tmp_path, monkeypatch):
    def written(command, *, n_runs):
        assert command[command.index("--places") + 1] == "input"
        slope = {"place": "input", "slope": 0.9, "interval": [0.7, 1.1]}
        Path(command[command.index("-o") + 1]).write_text(json.dumps({"slopes": [slope]}), encoding="utf-8")

    monkeypatch.setattr(run, "_run", written)
    for name, slope in (("loader_serial", 0.9), ("decoy_hidden_loader", 0.9), ("gc", None)):
        cell = Cell(family="mlp", pathology=name, dose="large")
        row = run._probed(cell.row(), cell, tmp_path)
        assert (row.slope, row.slope_interval) == (slope, slope and (0.7, 1.1))


def test_a_command_that_takes_too_long_is_ended_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_LIMIT_S", 2)
    script = "import pathlib, subprocess, sys; child = subprocess.Popen(['sleep', '60'])\n"
    script += "pathlib.Path(sys.argv[1]).write_text(str(child.pid)); child.wait()"
    path = tmp_path / "pid"
    with pytest.raises(run.CellFailedError, match="longer than 2 s"):
        run._run([sys.executable, "-c", script, str(path)], n_runs=3)
    time.sleep(0.2)
    started = path.read_text() if path.exists() else "none"  # a busy machine may not come as far in two seconds
    stat = Path(f"/proc/{started}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_a_cell_that_has_a_row_is_known_and_a_wrong_one_is_kept(tmp_path):
    row = Cell(family="mlp", pathology="gc", dose="small").row()
    path = tmp_path / "results.jsonl"
    assert done_keys(path) == set()
    path.write_bytes(msgspec.json.encode(row) + b"\n")
    failing = msgspec.structs.replace(row, key="mlp/gc/large/0", error="exit code 1")
    with path.open("ab") as file:
        file.write(msgspec.json.encode(failing) + b"\n")
    assert done_keys(path) == {"mlp/gc/small/0", "mlp/gc/large/0"}
    run.forget_failed(path)
    assert done_keys(path) == {"mlp/gc/small/0"}
    for gain, word, expected in (
        (0.4, "comm-bound", True),
        (0.4, "overhead-bound", False),
        (0.4, "kernel-bound", True),
        (0.01, "kernel-bound", False),
        (0.01, "overhead-bound", True),
    ):
        heard = msgspec.structs.replace(row, gain=gain, tools={"profkit": Said(bottleneck=word)})
        assert is_wrong(heard) is expected
    assert is_wrong(row), "nothing was measured"
    failed = msgspec.structs.replace(row, error="exit code 1: no space")
    assert is_wrong(failed)
    assert "no space" in told(failed)
    assert isinstance(msgspec.json.decode(path.read_bytes(), type=CellResult), CellResult)
