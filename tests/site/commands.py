"""Every command that the README and the site show, and the folder in which the paths that they name are there."""

import gzip
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml

from bench.site import scenes
from tests.conftest import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in DOCUMENTS if "reference" not in path.parts]
"""Not those that each build makes from the program."""
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(profkit [^`]+)`")
_IN_YAML = re.compile(r"profkit (?=[a-z])(?:[^)#|\n]|\n(?! *$))*")

TRAINING = '''\
"""A training script as small as one can be: it takes any option."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, index):
        time.sleep(0.0003)  # steps below 1 ms are too short for profkit probe
        return torch.full((16,), index % 7 / 7), torch.ones(1)


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(Points(), batch_size=8)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters())
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
'''
RUNS = "config,run,tokens_per_s\n" + "".join(f"{name},{n},{100 + n / 10}\n" for name in ("a", "b") for n in range(4))
LADDER = "rung,stage,tokens_per_sec,peak_mem_gb\n" + "".join(
    f"{rung},{stage},{100 * (n + 1)},{4 + n}\n"
    for n, rung in enumerate(("fp32", "bf16", "compile", "liger", "packing"))
    for stage in (1, 2)
)
SCALING = "gpus,per_gpu_batch,tokens_per_s,peak_mem_gb\n" + "".join(
    f"{gpus},8,{95 * gpus + n},10\n" for gpus in (1, 2, 4) for n in range(3)
)


def shown() -> Iterator[tuple[str, str]]:
    """Each page and each command in one of its blocks: shell lines, lines after `$ `, steps of a CI recipe."""
    for page in PAGES:
        for _, kind, body in _BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in _lines(kind, body):
                yield page.relative_to(ROOT).as_posix(), line


def _lines(kind: str, body: str) -> Iterator[str]:
    text = re.sub(r"\\\n\s*", " ", body)
    prompted = [line.strip()[2:] for line in text.splitlines() if line.strip().startswith("$ ")]
    if kind == "yaml":
        yield from (" ".join(found.split()) for run in _runs(yaml.safe_load(body)) for found in _IN_YAML.findall(run))
    elif prompted:
        yield from prompted
    elif kind in {"sh", "console", "bash"}:
        yield from (line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def _runs(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "run":
                yield str(inner)
            else:
                yield from _runs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _runs(inner)


def named() -> Iterator[tuple[str, str]]:
    """Each page and each command that stands in a sentence of it."""
    for page in PAGES:
        if page.name == "changelog.md":
            continue
        text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
        yield from ((page.relative_to(ROOT).as_posix(), " ".join(found.split())) for found in _INLINE.findall(text))


def words_of(command: str) -> list[str]:
    """The words of a command line, without its comment."""
    return shlex.split(command, comments=True)


def furnish(folder: Path) -> None:
    """Put what the commands name into a folder: captures, tables, a script, a report."""
    traces = ROOT / "traces"
    for name in ("traces", "workloads"):
        (folder / name).symlink_to(ROOT / name)
    for name in scenes.SCENES:
        scenes.written(name, folder / f"{name}.json")
    modules = folder / "TRACE"
    modules.write_bytes(_with_modules((folder / "sync.json").read_text()))
    packed = gzip.compress(modules.read_bytes(), mtime=0)
    (folder / "trace.json.gz").write_bytes(packed)
    (folder / "profkit-capture").mkdir()
    (folder / "profkit-capture" / "rank0.pt.trace.json.gz").write_bytes(packed)
    for name, capture in {
        "run": "ddp_straggler_ws4",
        "run7": "ddp_straggler_ws4",
        "job8": "ddp_straggler_ws4",
        "FOLDER": "ddp_straggler_ws4",
        "before": "fsdp_vlm_prefetch_off",
        "after": "fsdp_vlm_prefetch_on",
    }.items():
        shutil.copytree(traces / capture, folder / name)
    for path in (folder / "FOLDER").glob("*.gz"):
        path.write_bytes(gzip.compress(_with_modules(gzip.decompress(path.read_bytes()).decode()), mtime=0))
    for number, side in enumerate("ab"):
        for run in range(1, 6):
            for path in (folder / f"{side}{run}", folder / "runs" / ("baseline", "candidate")[number] / str(run)):
                shutil.copytree(traces / "ddp_strong_ws1", path)
    nsys = folder / "profkit-nsys"
    nsys.mkdir()
    (nsys / "profile.sqlite").write_bytes(
        gzip.decompress((traces / "nsys_data_cpu" / "profile.sqlite.gz").read_bytes())
    )
    for path in (folder / "a.py", folder / "b.py", folder / "train.py"):
        path.write_text(TRAINING)
    for name, text in {"main": RUNS, "branch": RUNS, "results": SCALING, "runs": LADDER}.items():
        (folder / f"{name}.csv").write_text(text)


def _with_modules(text: str) -> bytes:
    """The trace with a module, a block in it and a function around all of each step."""
    document = json.loads(text)
    events = document["traceEvents"]
    for step in [one for one in events if str(one.get("name", "")).startswith("ProfilerStep#")]:
        half = step["dur"] / 2
        for name, after, length in (
            ("train.py(9): train_step", 1, 2 * half - 2),
            ("nn.Module: Model_0", 2, 2 * half - 4),
            ("nn.Module: Block_0", 3, half - 6),
            ("nn.Module: Block_1", half, half - 6),
        ):
            stretch = {"ts": step["ts"] + after, "dur": length}
            events.append({**step, **stretch, "name": name, "cat": "python_function", "args": {}})
    return json.dumps(document).encode()
