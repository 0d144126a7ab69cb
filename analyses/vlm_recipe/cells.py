"""What is run: the ladder, each layer alone on the base, and the traps beside what they are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

PAD: Final = "padding.waste"
TOWER: Final = "module:tower"
"""No finding: the share of the step in the frozen tower, from the module tree."""
_FEW_WORDS: Final = {"--vocabulary": "512", "--tower-depth": "1"}
_SMALL_BATCH_SAMPLES: Final = 64
_SLOW_PRECISION_SAMPLES: Final = 32
"""Samples of a run on a CPU at the base's batch of 2, and in bf16 without units for it, instead of the workload's 128;
of a quick run the most. Chosen: runs of one length, some 6 s; a rate needs no equal samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of the recipe: its flags, and the findings whose ceiling predicts what it gives."""

    name: str
    title: str
    flags: Mapping[str, str]
    predicted_by: tuple[str, ...]


# In the published order. Bucketing gives way to packing, which leaves it no padding.
LAYERS: Final = (
    Layer(
        name="precision",
        title="weights in bf16",
        flags={"--precision": "bf16"},
        predicted_by=("precision.fallback", "precision.no_tf32"),
    ),
    Layer(name="batch", title="batch 16", flags={"--batch": "16"}, predicted_by=("host.launch_bound",)),
    Layer(name="bucketing", title="length bucketing", flags={"--bucketing": "on"}, predicted_by=(PAD,)),
    Layer(name="fusion", title="chunked loss", flags={"--fusion": "chunked-ce"}, predicted_by=("kernel.unfused",)),
    Layer(name="packing", title="packing", flags={"--packing": "on", "--bucketing": "off"}, predicted_by=(PAD,)),
    Layer(
        name="no-checkpointing",
        title="no checkpointing",
        flags={"--checkpointing": "off"},
        predicted_by=("work.recompute",),
    ),
    Layer(name="cached-features", title="cached features", flags={"--cached-features": "rows"}, predicted_by=(TOWER,)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the study runs on; `has_bf16` says whether it multiplies in bfloat16."""

    device: str
    has_bf16: bool

    @property
    def flags(self) -> dict[str, str]:
        """The flags of every run: one thread on a CPU, where two would wait for each other on shared cores."""
        return (
            {"--device": "cpu", "--threads": "1"} if self.device == "cpu" else {"--device": "cuda", "--size": "small"}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One configuration. `against` is the cell that it is compared with, "" for the base.

    `changes` are the layers that were put on, in order; packing, put on after bucketing, takes its place. `expected`
    are findings or the verdict that its trace must have, `excluded` those that it must not have, `readings` what
    `profkit compare` must read from it beside the trace of its twin.
    """

    slug: str
    kind: str
    stage: int
    title: str
    flags: Mapping[str, str]
    changes: tuple[str, ...] = ()
    against: str = ""
    predicted_by: tuple[str, ...] = ()
    samples: int | None = None
    expected: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    readings: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The command line of `workloads.recipe`."""
        return [word for pair in self.flags.items() for word in pair]

    @property
    def layers(self) -> str:
        """The layers as `profkit ladder` reads them, so that each rung holds those it stands on: "batch+packing"."""
        return "+".join(self.changes) or "none"


def cells(machine: Machine, *, is_quick: bool) -> tuple[Cell, ...]:
    """Gives all cells; quick ones are those of stage 2, each of fewer samples."""
    stages = (2,) if is_quick else (1, 2)
    found = [cell for stage in stages for cell in (*_ladder(machine, stage), *_alone(machine, stage))]
    most = _SMALL_BATCH_SAMPLES
    return tuple(
        replace(cell, samples=min(cell.samples or most, most)) if is_quick else cell
        for cell in (*found, *_traps(machine))
    )


def _base(machine: Machine, stage: int) -> dict[str, str]:
    return {**machine.flags, "--stage": str(stage)}


def _samples(machine: Machine, flags: Mapping[str, str]) -> int | None:
    if machine.device != "cpu" or "--batch" in flags:
        return None
    is_slow = flags.get("--precision", "fp32") != "fp32" and not machine.has_bf16
    return _SLOW_PRECISION_SAMPLES if is_slow else _SMALL_BATCH_SAMPLES


def kept(machine: Machine) -> tuple[Layer, ...]:
    """Gives the layers that later rungs stand on: all, but bf16 where the machine has no units for it."""
    return tuple(layer for layer in LAYERS if layer.name != "precision" or machine.has_bf16)


def _ladder(machine: Machine, stage: int) -> Iterator[Cell]:
    flags, before = _base(machine, stage), f"s{stage}/base"
    below: tuple[str, ...] = ()
    yield Cell(
        slug=before,
        kind="ladder",
        stage=stage,
        title="base: fp32, batch 2, checkpointing",
        flags=flags,
        samples=_samples(machine, flags),
        expected=(PAD, "work.recompute"),
        excluded=("precision.fallback", "data-bound"),
    )
    for layer in LAYERS:
        made = {**flags, **layer.flags}
        is_padded = made.get("--bucketing") != "on" and made.get("--packing") != "on"
        is_checkpointed = made.get("--checkpointing") != "off"
        expected = (*((PAD,) if is_padded else ()), *(("work.recompute",) if is_checkpointed else ()))
        yield Cell(
            slug=f"s{stage}/{layer.name}",
            kind="ladder",
            stage=stage,
            title=layer.title,
            flags=made,
            changes=(*below, layer.name),
            against=before,
            predicted_by=layer.predicted_by,
            samples=_samples(machine, made),
            expected=expected,
            excluded=tuple(
                {"precision.fallback", "data-bound", PAD, "work.recompute"}
                - set(expected)
                - ({PAD} if made.get("--bucketing") == "on" and made.get("--packing") != "on" else set())
            ),
        )
        if layer in kept(machine):
            flags, before, below = made, f"s{stage}/{layer.name}", (*below, layer.name)


def _alone(machine: Machine, stage: int) -> Iterator[Cell]:
    """Each layer alone on the base; precision and batch, where it is the first that is kept, stand in the ladder."""
    base = _base(machine, stage)
    in_ladder = {"precision", kept(machine)[0].name}
    for layer in LAYERS:
        if layer.name not in in_ladder:
            yield Cell(
                slug=f"s{stage}/only-{layer.name}",
                kind="single",
                stage=stage,
                title=f"base with {layer.title}",
                flags={**base, **layer.flags},
                changes=(layer.name,),
                against=f"s{stage}/base",
                samples=_samples(machine, {**base, **layer.flags}),
            )


def _traps(machine: Machine) -> Iterator[Cell]:
    base = _base(machine, 2)
    disguise = {**base, "--precision": "autocast-off-trap"}
    yield Cell(
        slug="s2/trap-precision",
        kind="trap",
        stage=2,
        title="fp32 in disguise",
        flags=disguise,
        changes=("disguise",),
        against="s2/base",
        samples=_samples(machine, disguise),
        expected=("precision.fallback",),
    )
    # Without LoRA: its many small products would hide how often the loss calls its own.
    few = {**_base(machine, 1), **_FEW_WORDS, "--batch": "16", "--packing": "on", "--checkpointing": "off"}
    changes = ("batch", "packing", "no-checkpointing")
    excluded = ("precision.fallback", "data-bound", PAD, "work.recompute")
    yield Cell(
        slug="s1/few",
        kind="trap",
        stage=1,
        title="512 words, small tower",
        flags=few,
        changes=changes,
        excluded=excluded,
    )
    yield Cell(
        slug="s1/few-chunked",
        kind="trap",
        stage=1,
        title="512 words: chunked loss",
        flags={**few, "--fusion": "chunked-ce"},
        changes=(*changes, "fusion"),
        against="s1/few",
        excluded=excluded,
        readings=("compare.products",),
    )
    unpinned = {"--pinned": "off"} if machine.device == "cuda" else {}  # as such readers leave it
    yield Cell(
        slug="s1/few-shards",
        kind="trap",
        stage=1,
        title="small tower: features out of shards" + (", unpinned" if unpinned else ""),
        flags={**few, "--cached-features": "shards", **unpinned},
        changes=(*changes, "shards"),
        against="s1/few",
        expected=("data-bound",),
    )
