"""Trains a stack of small layers with one flaw that a setting removes, or without it (`--healthy`): CPU only.

    python -m workloads.patterns gc [--healthy] [--steps 40]

The flaws are those of `profkit explain host.gc` and its neighbours. Prints the mean and the median
step as a line of JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from workloads.heap import warm_heap

CASES: Final = ("gc", "recompile", "breaks", "contention", "threads", "optimizer", "casts", "recompute")
_WIDTH: Final = 128
_N_LAYERS: Final = 12
_BATCH: Final = {"casts": 8, "optimizer": 16, "recompute": 512}
"""Rows of a batch, 64 elsewhere: few where weights are what costs, many where activations are."""
_N_OLD: Final = 200_000
_N_NEW: Final = 60_000
_N_BURNERS: Final = 8
_N_THREADS: Final = 32
_SKIPPED: Final = 3
_HEAP_BYTES: Final = 256 * 2**20


def layers(case: str) -> nn.Sequential:
    """A stack of equal blocks; of the case "casts", wide ones, whose weights are what costs."""
    width = 4 * _WIDTH if case == "casts" else _WIDTH
    blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(_N_LAYERS)]
    return nn.Sequential(*blocks)


class Checked(nn.Module):
    """A block; with the flaw, Python looks at what it gave before it goes on, and torch.compile's graph ends there."""

    def __init__(self, block: nn.Module, *, is_flawed: bool) -> None:
        super().__init__()
        self.block = block
        self.is_flawed = is_flawed

    def forward(self, inputs: Tensor) -> Tensor:
        """The block's output, added to its input."""
        outputs = self.block(inputs)
        if self.is_flawed and outputs.sum().isnan().item():
            print("not a number")
        return inputs + outputs


def compiled(case: str, model: nn.Sequential, *, is_flawed: bool) -> nn.Module:
    """What a step calls: of two cases, the model compiled."""
    if case == "recompile":
        return torch.compile(model, backend="eager", dynamic=False)
    if case == "breaks":
        checked = nn.Sequential(*(Checked(block, is_flawed=is_flawed) for block in model))
        return torch.compile(checked, backend="aot_eager")
    return model


def recomputing(model: nn.Sequential, inputs: Tensor) -> Tensor:
    """The forward pass, keeping the blocks' inputs only."""
    for block in model:
        inputs = checkpoint(block, inputs, use_reentrant=False)
    return inputs


@contextmanager
def burners(count: int) -> Iterator[None]:
    """Processes that want a core each."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def steps(case: str, *, is_flawed: bool, n_steps: int) -> Iterator[float]:
    """Trains and gives the seconds of each step; those of two twins can take turns, but for "gc" and "threads"."""
    warm_heap(_HEAP_BYTES)
    torch.manual_seed(0)
    torch.set_num_threads(_N_THREADS if case == "threads" and is_flawed else 1)
    gc.collect()
    gc.disable()
    if case == "gc" and is_flawed:
        gc.enable()
    old = [{"number": [number]} for number in range(_N_OLD)] if case == "gc" else []
    model = layers(case)
    is_bfloat16 = case == "casts" and not is_flawed
    if is_bfloat16:
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    if case == "optimizer":
        optimizer = torch.optim.AdamW(model.parameters(), fused=not is_flawed)
    called = compiled(case, model, is_flawed=is_flawed)
    width = next(model.parameters()).shape[-1]
    kept: list[list[list[int]]] = []
    for step in range(n_steps):
        begin = time.perf_counter()
        n_rows = _BATCH.get(case, 64) + (step if case == "recompile" and is_flawed else 0)
        inputs = torch.randn(n_rows, width, dtype=torch.bfloat16 if is_bfloat16 else torch.float32)
        if case == "gc":
            kept = [*kept[-1:], [[number] for number in range(_N_NEW)]]
        is_cast = case == "casts" and is_flawed
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False) if is_cast else nullcontext():
            outputs = recomputing(model, inputs) if case == "recompute" and is_flawed else called(inputs)
        outputs.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield time.perf_counter() - begin
    del old


def main() -> None:
    """Run one case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    chosen = parser.parse_args()
    if chosen.case == "recompile":
        from torch._dynamo import config  # slow to import

        config.recompile_limit = config.accumulated_recompile_limit = 1000
    is_flawed = not chosen.healthy
    with burners(_N_BURNERS if chosen.case == "contention" and is_flawed else 0):
        seconds = list(steps(chosen.case, is_flawed=is_flawed, n_steps=chosen.steps))
    steps_ms = [1e3 * each for each in seconds[_SKIPPED:]]
    times = {"step_mean_ms": round(statistics.mean(steps_ms), 3), "step_p50_ms": round(statistics.median(steps_ms), 3)}
    print(json.dumps({"case": chosen.case, "is_flawed": is_flawed, **times}))


if __name__ == "__main__":
    main()
