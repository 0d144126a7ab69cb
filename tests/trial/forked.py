"""Makes each change in a child of its own, forked once torch is imported, and prints what it did to a few steps."""

import gc
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import tests.capture.no_dynamo  # noqa: F401 - before torch

HOW = {"workers": {"n_workers": 2}, "prefetch": {"prefetch_factor": 4}, "threads": {"n_threads": 2}}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.ones(12, 3, 8, 8))


def steps(kind):
    """The losses of six steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    teacher = nn.Linear(192, 2) if kind == "teacher" else None
    if kind == "double":
        model.double()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    n_workers = 1 if kind == "workers" else 0
    data = Stream() if kind == "stream" else TensorDataset(torch.linspace(0, 1, 12 * 192).view(12, 3, 8, 8))
    loader = DataLoader(data, batch_size=2, num_workers=n_workers)
    found, needed = [], []
    for batch in (*loader, *loader) if kind == "epochs" else loader:
        inputs = batch if kind == "stream" else batch[0]
        output = model(inputs.double() if kind == "double" else inputs)
        needed.append(output.dtype == torch.float64)
        if teacher is not None:
            target = teacher(inputs.flatten(1))
            needed[-1] = target.requires_grad
            output = output - target.detach()
        loss = output.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    torch.save(model.state_dict(), os.devnull)
    torch.set_num_threads(1)
    facts = {
        "threads": torch.get_num_threads(),
        "gc": gc.isenabled(),
        "fused": bool(optimizer.param_groups[0]["fused"]),
        "foreach": bool(optimizer.param_groups[0]["foreach"]),
        "n_workers": loader.num_workers,
        "needed": needed,
        "is_channels_last": model[0].weight.is_contiguous(memory_format=torch.channels_last),
    }
    return found, facts


def tried(name, kind, folder):
    """A trial of one change, whole: what its record says."""
    from profkit.capture.inside.trial.trier import Trier
    from profkit.capture.options import Options

    trial = {"change": name, "how": HOW.get(name, {}), "n_settling": 0, "n_steps": 1000}
    trier = Trier(Options(folder=folder, trial=trial))
    backward = torch.autograd.backward
    trier.begin()
    losses, facts = steps(kind)
    trier.finish()
    facts["is_put_back"] = torch.autograd.backward is backward
    (path,) = Path(folder).glob("*.tried")
    record = json.loads(path.read_text())
    return {"losses": losses, **facts, "record": record}


for line in sys.stdin:
    name, kind = json.loads(line)
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(tried(name, kind, folder)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
