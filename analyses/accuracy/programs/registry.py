"""Families and pathologies by name. To add one, write its class and put it here."""

from __future__ import annotations

from typing import Final

from analyses.accuracy.programs.families.base import Family
from analyses.accuracy.programs.families.ranks import Ddp
from analyses.accuracy.programs.families.tables import Mlp, Recsys
from analyses.accuracy.programs.families.text import Rnn, Transformer
from analyses.accuracy.programs.families.vision import Cnn, Vlm
from analyses.accuracy.programs.pathologies import decoys, host, loading, machine, ranks
from analyses.accuracy.programs.pathologies.base import Pathology

FAMILIES: Final[dict[str, type[Family]]] = {each.name: each for each in (Mlp, Cnn, Transformer, Vlm, Recsys, Rnn, Ddp)}
PATHOLOGIES: Final[dict[str, type[Pathology]]] = {
    each.name: each
    for each in (
        Pathology,
        loading.Jitter,
        loading.Serial,
        loading.Transform,
        loading.TooFewWorkers,
        loading.RareItems,
        loading.Padding,
        host.PythonOverhead,
        host.TinyOps,
        host.Unfused,
        host.Garbage,
        host.OptimizerLoop,
        host.Logging,
        host.Checkpoint,
        machine.Contention,
        machine.Threads,
        decoys.HiddenLoader,
        decoys.SideThread,
        decoys.RareEvaluation,
        decoys.RareCheckpoint,
        ranks.StragglerData,
        ranks.StragglerCompute,
        ranks.StragglerHost,
        ranks.Rank0Work,
        ranks.TokenSkew,
        ranks.ExtraCollective,
        ranks.GradientSync,
        ranks.SlowLink,
        ranks.HiddenCollective,
    )
}
SHARES: Final = {"none": 0.0, "small": 0.05, "medium": 0.2, "large": 0.45}
"""What the removal of a dose is aimed to gain, as a share of the step."""
