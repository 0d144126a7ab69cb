"""The recipe: no layer of it changes what is trained, its traps are what they say, and tokens are counted."""

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import cross_entropy, linear  # noqa: E402

from workloads import memory  # noqa: E402
from workloads.recipe import __main__ as command  # noqa: E402
from workloads.recipe import training  # noqa: E402
from workloads.recipe.data import plan  # noqa: E402
from workloads.recipe.features import Features, fill  # noqa: E402
from workloads.recipe.layers import ChunkedLoss, FullLinear  # noqa: E402
from workloads.recipe.model import build_model  # noqa: E402
from workloads.recipe.options import SHAPES, Doses, Layers, read_options  # noqa: E402
from workloads.recipe.training import built_job, run  # noqa: E402
from workloads.vlm.data import Captions, build_loader  # noqa: E402
from workloads.vlm.splice import UNLABELLED, plan_splice  # noqa: E402

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
SHAPE = replace(
    SHAPES["mini"],
    image=8,
    patch=4,
    tower_width=8,
    tower_heads=2,
    tower_depth=1,
    width=16,
    depth=2,
    mlp=24,
    vocabulary=48,
    max_text=24,
)
DOSES = Doses(shape=SHAPE, samples=16, skip=0, loss_chunk=7, threads=1, lr=3e-2, lora_rank=2)


def outcome_of(layers, doses=DOSES):
    with built_job(layers, doses, CPU) as job:
        return run(job)


@pytest.fixture(scope="module")
def bases():
    return {stage: outcome_of(Layers(batch=4), replace(DOSES, stage=stage)) for stage in (1, 2)}


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize(
    ("layer", "tolerance"),
    [
        ({"is_checkpointed": False}, 1e-6),
        ({"fusion": "chunked-ce"}, 1e-5),
        ({"is_packed": True}, 1e-5),
        ({"is_packed": True, "fusion": "chunked-ce", "is_checkpointed": False}, 1e-5),
        ({"cache": "rows"}, 1e-3),  # kept in half precision
        ({"cache": "shards"}, 1e-3),
        ({"precision": "bf16"}, 2e-2),
        ({"precision": "autocast-off-trap"}, 2e-2),
    ],
)
def test_a_layer_changes_no_loss(bases, stage, layer, tolerance):
    made = outcome_of(Layers(batch=4, **layer), replace(DOSES, stage=stage))
    assert made.losses == pytest.approx(bases[stage].losses, rel=tolerance)
    assert made.tokens == bases[stage].tokens
    assert (made.pad_fraction == 0) == layer.get("is_packed", False)


def test_something_is_learned(bases):
    assert all(min(base.losses) < base.losses[0] for base in bases.values())


def test_bucketing_trains_on_the_same_samples_with_less_padding(bases):
    captions = Captions(SHAPE, n_samples=64, seed=0)
    made = {is_bucketed: plan(captions, n_steps=16, batch=4, is_bucketed=is_bucketed, seed=0) for is_bucketed in (0, 1)}
    for window in range(2):
        mine = slice(8 * window, 8 * window + 8)
        in_order, alike = (sorted(sample for batch in made[kind][mine] for sample in batch) for kind in (0, 1))
        assert in_order == alike
    assert [len(batch) for batch in made[1]] == [4] * 16
    assert outcome_of(Layers(batch=4, is_bucketed=True)).pad_fraction < bases[2].pad_fraction


def test_samples_packed_end_to_end_see_themselves_alone():
    captions = Captions(SHAPE, n_samples=3, seed=1)
    images, ids, labels = zip(*(captions[index] for index in range(3)), strict=True)
    padded, packed = (plan_splice(ids, labels, n_vision=SHAPE.n_vision, is_packed=flag) for flag in (False, True))
    assert packed.labels.shape == (1, padded.n_real)
    assert (padded.grid, packed.n_padded) == (None, packed.n_real)
    torch.manual_seed(0)
    model = build_model(Layers(), DOSES, CPU)
    apart, together = (model.logits(torch.stack(images), splice) for splice in (padded, packed))
    real = torch.cat([apart[row, :length] for row, length in enumerate(padded.lengths)])
    torch.testing.assert_close(together[0], real)
    ends = torch.tensor(packed.lengths).cumsum(0)[:-1]
    assert (packed.labels[0, ends] == UNLABELLED).all()  # no sample's last token predicts into the next sample


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_a_loss_in_chunks_has_the_value_and_gradients_of_the_whole(chunk):
    torch.manual_seed(0)
    hidden, weight = torch.randn(20, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True)
    targets = torch.randint(0, 9, (20,)).masked_fill(torch.arange(20) % 4 == 0, UNLABELLED)
    whole = cross_entropy(linear(hidden, weight), targets, ignore_index=UNLABELLED, reduction="sum")
    parts = ChunkedLoss.apply(hidden, weight, targets, chunk)
    torch.testing.assert_close(parts, whole)
    expected, found = (torch.autograd.grad(3 * loss, (hidden, weight)) for loss in (whole, parts))
    torch.testing.assert_close(found, expected)


def test_the_disguise_multiplies_in_fp32_where_autocast_would_not():
    doses, x = replace(DOSES, stage=2), torch.randn(2, SHAPE.width)
    plain, disguised = (
        build_model(Layers(precision=name), doses, CPU).decoder for name in ("fp32", "autocast-off-trap")
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert plain.head(x).dtype == torch.bfloat16
        assert disguised.head(x).dtype == torch.float32
    assert isinstance(disguised.blocks[0].attention.query.base, FullLinear)
    assert disguised.head.weight is disguised.embedding.weight
    true = build_model(Layers(precision="bf16"), doses, CPU)
    assert {parameter.dtype for parameter in true.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("shard", [1, 4])
def test_features_are_what_the_tower_gives(tmp_path, shard):
    captions = Captions(SHAPE, n_samples=10, seed=2)
    model = build_model(Layers(), DOSES, CPU)
    features = Features(tmp_path / "f", n_samples=10, shape=(SHAPE.n_vision, SHAPE.tower_width), shard=shard)
    fill(features, model.tower, captions, CPU)
    batch = next(iter(build_loader(captions, [[9, 4]], pin_memory=False)))
    read = torch.stack([features.read(index).float() for index in (9, 4)])
    torch.testing.assert_close(read, model.tower(batch.images), rtol=2e-3, atol=2e-3)


def test_every_step_tells_its_tokens(monkeypatch):
    counted = []
    monkeypatch.setattr(training, "told", lambda **counts: counted.append(counts))
    made = outcome_of(Layers(batch=4), replace(DOSES, skip=1, samples=8))
    assert [counts["samples"] for counts in counted] == [4, 4, 4]
    assert sum(counts["tokens"] for counts in counted[1:]) == made.tokens
    assert sum(counts["padded_tokens"] for counts in counted[1:]) == made.padded_tokens > made.tokens


def test_the_command_line_gives_a_row(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SHAPES, "mini", SHAPE)
    path = tmp_path / "rows" / "a.jsonl"
    assert command.main(["--device=cpu", "--steps=3", "--skip=1", "--batch=4", "--json", str(path), "--label=x"]) == 0
    row = json.loads(path.read_text())
    assert (row["label"], row["batch"], row["samples"], len(row["steps_ms"])) == ("x", 4, 8, 2)
    assert row["real_tokens_per_sec"] == pytest.approx(row["tokens"] / sum(row["steps_ms"]) * 1e3)
    assert capsys.readouterr().out.startswith("stage 2, batch 4: ")


def test_peak_memory_is_that_of_training_not_of_filling_the_features(monkeypatch):
    done, reset = [], []
    monkeypatch.setattr(training, "fill", lambda *_: done.append("filled"))
    monkeypatch.setattr(training, "reset_peak", lambda _: done.append("reset"))
    monkeypatch.setattr(training, "train_step", lambda *_: done.append("step") or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        outcome_of(Layers(batch=4, cache="rows"))
    assert done == ["filled", "reset", "step"]
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset.append)
    memory.reset_peak(torch.device("cuda"))
    memory.reset_peak(CPU)
    assert reset == [torch.device("cuda")]


def test_a_row_tells_every_flag_that_changes_the_run(tmp_path, monkeypatch):
    monkeypatch.setitem(SHAPES, "mini", SHAPE)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda _: None)
    rows = []
    for number, flags in enumerate(([], ["--tf32=on"], ["--pinned=off"], ["--lora-rank=1"], ["--shard=2"], ["--lr=1"])):
        path = tmp_path / str(number)
        folder = tmp_path / "features" / str(number)
        command.main(
            [
                "--device=cpu",
                "--threads=1",
                "--steps=1",
                "--skip=0",
                "--json",
                str(path),
                "--cache-dir",
                str(folder),
                *flags,
            ]
        )
        row = json.loads(path.read_text())
        rows.append({name: value for name, value in row.items() if not isinstance(value, float) or name == "lr"})
        rows[-1].pop("steps_ms")
    assert len({json.dumps(row) for row in rows}) == len(rows)


@pytest.mark.parametrize(
    "flags",
    [
        ["--packing=on", "--bucketing=on"],
        ["--precision=autocast-off-trap", "--fusion=chunked-ce"],
        ["--steps=4"],  # as many as are not timed
        ["--vocabulary=2"],  # padding and the placeholder
    ],
)
def test_flags_that_exclude_each_other_are_a_usage_error(flags, capsys):
    with pytest.raises(SystemExit) as ended:
        read_options(flags)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err
