"""The vision-language workload: its splice against a slow one, its LoRA, and one loss however the work is divided."""

import json
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.fsdp", reason="needs FSDP2")

from tests.conftest import IN_FULL  # noqa: E402
from workloads import fsdp_vlm  # noqa: E402
from workloads.vlm import training  # noqa: E402
from workloads.vlm.data import Captions, build_loader, micro_batches  # noqa: E402
from workloads.vlm.decoder import rotary_table, rotated  # noqa: E402
from workloads.vlm.model import build_model  # noqa: E402
from workloads.vlm.options import Choices, read_choices  # noqa: E402
from workloads.vlm.sizes import Sizes  # noqa: E402
from workloads.vlm.splice import FIRST_WORD, IMAGE, UNLABELLED, plan_splice, spliced, targets_of  # noqa: E402

pytestmark = pytest.mark.torch

SIZES = Sizes(
    image=8,
    patch=4,
    tower_width=8,
    tower_depth=1,
    tower_heads=2,
    width=16,
    depth=2,
    heads=4,
    kv_heads=2,
    mlp=24,
    vocabulary=32,
    max_text=20,
)
SHORT = ("--device=cpu", "--steps=4", "--skip=1", "--batch=2")


@pytest.fixture
def batch():
    captions = Captions(SIZES, n_samples=3, seed=1)
    return next(iter(build_loader(captions, [range(3)], pin_memory=False)))


@pytest.fixture
def run(tmp_path, capsys):
    """Runs the workload on one rank in this process and gives its row."""

    def run_here(*flags):
        path = tmp_path / "rows.jsonl"
        assert fsdp_vlm.main([*SHORT, "--json", str(path), *flags]) == 0
        assert capsys.readouterr().out.startswith("final loss ")
        return json.loads(path.read_text().splitlines()[-1])

    return run_here


def model_of(**changes):
    choices = {"stage": 2, "lora_rank": 0, "is_tied": True, "is_checkpointed": False, **changes}
    torch.manual_seed(0)
    return build_model(SIZES, **choices)


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_the_splice_is_the_one_a_loop_over_tokens_gives():
    n_vision, width = 3, 4
    ids = [torch.tensor(sample) for sample in ([5, IMAGE, 6, 7], [IMAGE, 8], [9, 10, 11], [12, IMAGE, IMAGE])]
    labels = [torch.where(sample == 7, sample, UNLABELLED) for sample in ids]
    table = torch.randn(16, width)
    vision = torch.randn(4, n_vision, width)
    splice = plan_splice(ids, labels, n_vision=n_vision)

    expected = torch.zeros(4, 7, width)
    expected_labels = torch.full((4, 7), UNLABELLED)
    image = 0
    for row, (sample, label) in enumerate(zip(ids, labels, strict=True)):
        at = 0
        for token, target in zip(sample.tolist(), label.tolist(), strict=True):
            if token == IMAGE:
                expected[row, at : at + n_vision] = vision[image]
                image, at = image + 1, at + n_vision
            else:
                expected[row, at], expected_labels[row, at] = table[token], target
                at += 1
    assert splice.lengths == (6, 4, 3, 7)
    assert (splice.n_real, splice.n_padded) == (20, 28)
    assert torch.equal(splice.labels, expected_labels)
    assert torch.equal(spliced(table[splice.text_ids], vision, splice), expected)


def test_targets_are_the_next_labels_and_only_answers_have_one(batch):
    labels = batch.splice.labels
    assert torch.equal(targets_of(labels)[:, :-1], labels[:, 1:])
    assert (targets_of(labels)[:, -1] == UNLABELLED).all()
    captions = Captions(SIZES, n_samples=3, seed=1)
    assert (targets_of(labels) != UNLABELLED).sum() == captions.n_labelled(0, 3)
    for row, length in enumerate(batch.splice.lengths):
        assert (labels[row, length:] == UNLABELLED).all()
        n_question = int(captions.n_question[row]) - 1 + SIZES.n_vision
        assert (labels[row, :n_question] == UNLABELLED).all()
        assert (labels[row, n_question:length] >= FIRST_WORD).all()


def test_what_padding_holds_changes_no_loss(batch):
    model, splice = model_of(), batch.splice
    short = min(range(3), key=splice.lengths.__getitem__)
    captions = Captions(SIZES, n_samples=3, seed=1)
    alone = next(iter(build_loader(captions, [range(short, short + 1)], pin_memory=False)))
    length = splice.lengths[short]
    assert length < splice.labels.shape[1]
    together = model.logits(batch.images, splice)[short, :length]
    torch.testing.assert_close(together, model.logits(alone.images, alone.splice)[0])


def test_shapes_from_image_to_logits(batch):
    model = model_of()
    assert model.tower(batch.images).shape == (3, SIZES.n_vision, SIZES.tower_width)
    assert model.logits(batch.images, batch.splice).shape == (*batch.splice.labels.shape, SIZES.vocabulary)
    assert model.decoder.blocks[0].attention.key.weight.shape == (2 * 4, SIZES.width)
    loss = model(batch.images, batch.splice)
    n_labelled = int((batch.splice.labels != UNLABELLED).sum())
    assert loss.item() / n_labelled == pytest.approx(math.log(SIZES.vocabulary), rel=0.1)


def test_rotary_positions_see_distances_alone():
    query, key = torch.randn(2, 1, 1, 1, 8)
    table = rotary_table(12, 8, torch.device("cpu"))
    turned_query, turned_key = (rotated(x.expand(1, 1, 12, 8), table)[0, 0] for x in (query, key))
    torch.testing.assert_close(turned_query[7] @ turned_key[4], turned_query[9] @ turned_key[6])
    torch.testing.assert_close(turned_query[0], query.flatten())


def test_an_own_head_is_more_parameters_than_a_tied_one():
    tied, own = (sum(p.numel() for p in model_of(is_tied=is_tied).parameters()) for is_tied in (True, False))
    assert own - tied == SIZES.vocabulary * SIZES.width


def test_each_stage_trains_its_parts():
    projector = {"projector.0.weight", "projector.0.bias", "projector.2.weight", "projector.2.bias"}
    assert trained(model_of(stage=1)) == projector
    lora = trained(model_of(lora_rank=2)) - projector
    assert len(lora) == SIZES.depth * 7 * 2
    assert {name.rpartition(".")[2] for name in lora} == {"up", "down"}
    whole = trained(model_of())
    assert not any(name.startswith("tower") for name in whole)
    assert "decoder.embedding.weight" in whole


def test_a_lora_begins_as_what_it_stands_beside_and_only_it_learns(batch):
    plain, low_rank = model_of(), model_of(lora_rank=2)
    assert torch.equal(plain.logits(batch.images, batch.splice), low_rank.logits(batch.images, batch.splice))
    low_rank(batch.images, batch.splice).backward()
    layer = low_rank.decoder.blocks[0].mlp.down
    assert layer.base.weight.grad is None
    assert layer.up.grad.abs().sum() > 0


def test_checkpointing_changes_no_gradient(batch):
    gradients = []
    for is_checkpointed in (False, True):
        model = model_of(is_checkpointed=is_checkpointed)
        model(batch.images, batch.splice).backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) > 10
    for kept, recomputed in zip(*gradients, strict=True):
        assert torch.equal(kept, recomputed)


def test_a_gradient_step_lowers_the_loss_of_its_batch(batch):
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        loss = model(batch.images, batch.splice)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(("n_ranks", "batch", "accumulation"), [(1, 2, 4), (2, 2, 2), (4, 2, 1), (2, 1, 4)])
def test_a_step_takes_the_same_samples_however_they_are_divided(n_ranks, batch, accumulation):
    kinds = {"n_steps": 3, "batch": batch, "accumulation": accumulation, "n_ranks": n_ranks}
    of_ranks = [micro_batches(rank=rank, **kinds) for rank in range(n_ranks)]
    assert {len(batches) for batches in of_ranks} == {3 * accumulation}
    for step in range(3):
        mine = slice(step * accumulation, (step + 1) * accumulation)
        taken = sorted(sample for batches in of_ranks for part in batches[mine] for sample in part)
        assert taken == list(range(8 * step, 8 * step + 8))


def test_a_sample_is_its_own_whoever_asks():
    first, again, other = (Captions(SIZES, n_samples=4, seed=seed) for seed in (3, 3, 4))
    for mine, same in zip(first[2], again[2], strict=True):
        assert torch.equal(mine, same)
    assert not torch.equal(first[2][0], other[2][0])
    assert (first[2][1] == IMAGE).sum() == 1
    assert first.n_tokens(0, 4) == sum(len(first[i][1]) + SIZES.n_vision - 1 for i in range(4))


def test_a_run_repeats_to_the_last_bit_and_its_seed_matters(run):
    first, again = run(), run()
    assert first["final_loss"] == again["final_loss"]
    assert first["final_loss"] != run("--seed=1")["final_loss"]
    assert first["steps_timed"] == len(first["steps_ms"]) == 3


@pytest.mark.parametrize("flags", [("--checkpoint=on",), ("--prefetch=on",), ("--batch=1", "--accumulation=2")])
def test_how_the_work_is_done_does_not_change_the_loss(run, flags):
    assert run(*flags)["final_loss"] == pytest.approx(run()["final_loss"], rel=1e-6)


@pytest.mark.parametrize("flags", [("--stage=1",), ("--lora-rank=4",), ("--head=own",), ("--precision=bf16",)])
def test_every_kind_of_training_runs(run, flags):
    row = run(*flags, "--accumulation=2")
    assert row["final_loss"] == pytest.approx(math.log(512), rel=0.05)
    assert row["effective_batch"] == 4
    assert row["tokens_per_sec"] > 0


def test_each_step_tells_what_it_worked_on(run, monkeypatch):
    counted = []
    monkeypatch.setattr(training, "told", lambda **counts: counted.append(counts))
    row = run("--accumulation=2")
    sizes = training.SIZES["tiny"]
    captions = Captions(sizes, n_samples=16, seed=0)
    assert [one["tokens"] for one in counted] == [captions.n_tokens(begin, begin + 4) for begin in range(0, 16, 4)]
    assert {one["samples"] for one in counted} == {4}
    assert all(one["padded_tokens"] >= one["tokens"] for one in counted)
    real, padded = (sum(one[name] for one in counted[1:]) for name in ("tokens", "padded_tokens"))
    assert row["padding_fraction"] == pytest.approx(1 - real / padded)
    assert row["tokens_per_sec"] == pytest.approx(real / sum(row["steps_ms"]) * 1e3)


def test_steps_under_a_profiler_do_not_count(run, monkeypatch):
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    acts = iter([lambda: None, profiler.start, profiler.stop, lambda: None])  # after each of four steps
    monkeypatch.setattr(training, "told", lambda **counts: next(acts)())
    row = run()
    assert (row["steps_timed"], row["steps_profiled"]) == (1, 2)


def test_a_run_that_times_nothing_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        read_choices(["--steps=3", "--skip=3"])
    assert ended.value.code == 2
    assert "leaves no step to time" in capsys.readouterr().err
    assert read_choices([])[2] == Choices()


@pytest.mark.sampled
@pytest.mark.skipif(not IN_FULL, reason="half a minute, and tests/capture/test_shapes.py runs FSDP: make full")
def test_two_ranks_train_as_one_does(run, on_two_ranks, tmp_path):
    """The same samples, thus the same losses, with prefetch and without."""
    alone = run("--accumulation=2", "--batch=2")
    for prefetch in ("on", "off"):
        path = tmp_path / f"{prefetch}.jsonl"
        on_two_ranks("workloads.fsdp_vlm", *SHORT, "--accumulation=1", f"--prefetch={prefetch}", "--json", str(path))
        row = json.loads(path.read_text())
        assert row["world_size"] == 2
        assert row["final_loss"] == pytest.approx(alone["final_loss"], rel=1e-5)
        assert row["padding_fraction"] == pytest.approx(alone["padding_fraction"])
