"""Drawn cells of the accuracy benchmark: single ones with stated values, and a whole benchmark by chance."""

import random

import msgspec

from analyses.accuracy.cell import CellResult, Said

FAMILIES = ("cnn", "ddp", "mlp", "recsys", "rnn", "transformer", "vlm")
EXPECTED = {
    "loader_serial": "data-bound",
    "loader_cpu": "data-bound",
    "python_overhead": "overhead-bound",
    "tiny_ops": "overhead-bound",
    "unfused": "kernel-bound",
}
RANKS = {"straggler_host": "straggler-bound", "extra_collective": "comm-bound"}
DOSES = {"none": 0.0, "small": 0.05, "medium": 0.2, "large": 0.45}


def said(bottleneck, **more):
    return Said(bottleneck=bottleneck, **more)


def cell(key="mlp/loader_serial/large/0", *, kind="fault", says="data-bound", **more):
    """One cell; `says` is what profkit says: a verdict or a whole answer."""
    family, pathology, dose, seed = key.split("/")
    values = {
        "key": key,
        "family": family,
        "pathology": pathology,
        "dose": dose,
        "kind": kind,
        "seed": int(seed),
        "expected": EXPECTED.get(pathology, RANKS.get(pathology, "")),
        "base": "kernel-bound",
        "tools": {"profkit": says if isinstance(says, Said) else said(says)},
        **more,
    }
    return CellResult(**values)


def benchmark(seed=0, *, n_seeds=2):
    """A benchmark of some 300 cells, its tools right about as often as they are sure."""
    rng = random.Random(seed)  # noqa: S311 - a drawn benchmark
    cells = []
    for family in FAMILIES:
        for pathology, expected in {**EXPECTED, **(RANKS if family == "ddp" else {})}.items():
            for dose, aim in DOSES.items():
                cells += [
                    drawn(rng, (family, pathology, dose, str(number)), expected, aim) for number in range(n_seeds)
                ]
        cells += [drawn(rng, (family, "jitter", "none", str(number)), "", 0.0, "healthy") for number in range(3)]
        cells += [drawn(rng, (family, "hidden_loader", "large", "0"), "data-bound", 0.0, "decoy")]
    return cells


def drawn(rng, words, expected, aim, kind="fault"):
    key = "/".join(words)
    if rng.random() < 0.02:
        return cell(key, kind=kind, error="RuntimeError: the job ended with 1", tools={})
    gain = rng.gauss(aim, 0.01 + 0.1 * aim)
    half = abs(rng.gauss(0.01, 0.005))
    confidence = rng.choice((0.4, 0.6, 0.7, 0.85, 0.9))
    is_right = rng.random() < confidence
    bottleneck = expected if gain >= 0.1 and expected else "kernel-bound"
    if not is_right:
        bottleneck = rng.choice(("inconclusive", "data-bound", "overhead-bound"))
    predicted = max(0.0, gain + abs(rng.gauss(0.02, 0.03)) - 0.005)
    finding = {"classes": (bottleneck,), "finding_ids": ("drawn",), "finding_gains": (predicted,)}
    ours = said(bottleneck, confidence=confidence, gain=predicted, headline="what was drawn", **finding)
    return cell(
        key,
        kind=kind,
        expected=expected,
        gain=None if kind == "healthy" else gain,
        gain_interval=None if kind == "healthy" else (gain - half, gain + half),
        n_blocks=6,
        tools={"profkit": ours, "naive": said(rng.choice(("data-bound", "kernel-bound"))), "hta": said("")},
        late_rank=1 if expected == "straggler-bound" else None,
        n_ranks=2 if words[0] == "ddp" else 1,
        slope=rng.gauss(0.0 if kind == "decoy" else 1.0, 0.1) if rng.random() < 0.2 else None,
        load=2 + rng.random(),
        duration_s=12.0,
        versions={"torch": "2.13.0", "python": "3.11.7"},
    )


def write(path, cells):
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in cells))
