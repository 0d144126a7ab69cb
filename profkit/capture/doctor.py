"""What this machine can capture, and the command for what is missing."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from profkit.capture.command import redacted_text
from profkit.capture.tools.nsight import counters_are_closed
from profkit.native import library

_ASK_S: Final = 60

_QUESTION: Final = """
import importlib.util as u, json, platform, sys
found = {"python": platform.python_version(), "executable": sys.executable}
def has(name):
    try: return u.find_spec(name) is not None
    except Exception: return False
found["frameworks"] = [n for n in %r if has(n)]
found["nvtx"] = has("nvtx")
if has("torch"):
    import torch, warnings
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.is_available()
    found["refusal"] = str(said[0].message) if said else ""
    found["torch"] = str(torch.__version__)
    found["cuda"] = torch.version.cuda
    found["hip"] = getattr(torch.version, "hip", None)
    found["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    found["activities"] = sorted(str(a).rpartition(".")[2] for a in torch.profiler.supported_activities())
print(json.dumps(found))
"""

FRAMEWORKS: Final = {
    "transformers": "Trainer is captured as it is",
    "accelerate": "captured as it is; its own way: ProfileKwargs in code",
    "lightning": 'captured as it is; its own way: Trainer(profiler="pytorch")',
    "pytorch_lightning": 'captured as it is; its own way: Trainer(profiler="pytorch")',
    "deepspeed": "--inject env; its own way: wall_clock_breakdown, flops_profiler in the config",
    "megatron": "its own way: --profile --use-pytorch-profiler --profile-step-start A --profile-step-end B",
    "torchtitan": "its own way: [profiling] enable_profiling, profile_freq, profiler_warmup, profiler_active",
    "vllm": "inference: --step-on forward; its own way: --profiler-config",
    "composer": "its own way: Trainer(profiler=Profiler(...))",
}
"""Training frameworks and their own switch for torch.profiler (docs/sources.md, rule 24)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing a capture may need: whether it is there, what was seen, and the command if it is not.

    `is_ok` is None for what is neither good nor bad here (no GPU, a framework).
    """

    name: str
    is_ok: bool | None
    seen: str
    fix: str = ""


def checks(python: str | None = None) -> list[Check]:
    """The checks of this machine, for scripts run by this Python (default: ours with torch, else PATH)."""
    has_torch_here = find_spec("torch") is not None
    program = python or (sys.executable if has_torch_here else shutil.which("python") or sys.executable)
    facts, problem = _asked(program)
    found = [Check(name="python", is_ok=not problem, seen=problem or f"{facts['python']} ({facts['executable']})")]
    if not problem:
        found += _torch_checks(facts, program)
        found += [
            Check(name=name, is_ok=None, seen=FRAMEWORKS[name]) for name in FRAMEWORKS if name in facts["frameworks"]
        ]
    return [*found, *_tool_checks(), *_permission_checks(), _isal_check(), _scanner_check(), _disk_check()]


def _asked(program: str) -> tuple[dict[str, Any], str]:
    question = _QUESTION % (tuple(FRAMEWORKS),)
    command = [program, "-W", "ignore", "-c", question]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_ASK_S)  # noqa: S603
        facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, f"{program} cannot be asked ({type(error).__name__})"
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return {}, f"{program} cannot be asked ({redacted_text(last)[:200]})"
    return facts, ""


def _torch_checks(facts: dict[str, Any], program: str) -> list[Check]:
    from profkit.capture.options import OLDEST_TORCH, torch_problem

    version, pip = facts.get("torch"), f"{shlex.quote(program)} -m pip"
    if version is None:
        return [Check(name="torch", is_ok=False, seen="not installed", fix=f"{pip} install torch")]
    problem = torch_problem(version)
    newest = f"{pip} install --upgrade 'torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}'"
    found = [Check(name="torch", is_ok=not problem, seen=problem or version, fix=newest if problem else "")]
    build = facts.get("cuda") or facts.get("hip")
    devices = facts["devices"]
    smi = shutil.which("nvidia-smi") is not None
    refusal = redacted_text(str(facts.get("refusal") or "").partition(" (")[0]).strip()[:200]
    if devices:
        found.append(Check(name="gpu", is_ok=True, seen=f"{len(devices)} x {devices[0]}, CUDA {build}"))
    elif refusal and build:
        fix = f"update the driver (nvidia-smi shows it), or {pip} install a torch built for its CUDA"
        found.append(Check(name="gpu", is_ok=False, seen=f"torch cannot use it: {refusal}", fix=fix))
    elif smi and not build:
        fix = f"{pip} install torch --index-url https://download.pytorch.org/whl/cu128"
        found.append(Check(name="gpu", is_ok=False, seen="a GPU, but this torch is built without CUDA", fix=fix))
    elif smi:
        seen = "a GPU, but torch cannot use it"
        found.append(Check(name="gpu", is_ok=False, seen=seen, fix="nvidia-smi; echo $CUDA_VISIBLE_DEVICES"))
    else:
        found.append(Check(name="gpu", is_ok=None, seen="none: captures hold only the host side"))
    if devices:
        has_cupti = "CUDA" in facts["activities"]
        seen = "torch's profiler records the device" if has_cupti else "missing: traces would hold no kernels"
        fix = "" if has_cupti else f"{pip} install nvidia-cuda-cupti-cu12"
        found.append(Check(name="cupti", is_ok=has_cupti, seen=seen, fix=fix))
    nvtx_fix = "" if facts["nvtx"] else f"{pip} install nvtx"
    seen = "installed" if facts["nvtx"] else "not installed: nsys shows no phases"
    return [*found, Check(name="nvtx", is_ok=True if facts["nvtx"] else None, seen=seen, fix=nvtx_fix)]


def _tool_checks() -> list[Check]:
    wanted = {"nsys": "apt-get install nsight-systems-cli", "ncu": "apt-get install nsight-compute"}
    found: list[Check] = []
    for name, fix in wanted.items():
        path = shutil.which(name)
        if path is None:
            found.append(Check(name=name, is_ok=None, seen="not on PATH; only needed for the next step", fix=fix))
            continue
        done = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)  # noqa: S603
        lines = [line for line in done.stdout.splitlines() if "ersion" in line] or [path]
        found.append(Check(name=name, is_ok=True, seen=lines[-1].strip()[:100]))
    return found


def _permission_checks() -> list[Check]:
    found: list[Check] = []
    if Path("/proc/driver/nvidia/params").exists():
        is_closed = counters_are_closed()
        fix = "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-prof.conf"
        seen = "ncu would say ERR_NVGPUCTRPERM" if is_closed else "GPU counters are open"
        found.append(Check(name="counters", is_ok=not is_closed, seen=seen, fix=fix if is_closed else ""))
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid")
    if paranoid.exists():
        level = int(paranoid.read_text(encoding="utf-8").strip() or 4)
        is_open = level <= 2
        seen = f"perf_event_paranoid is {level}" + ("" if is_open else ": nsys cannot sample the CPU")
        fix = "" if is_open else "sudo sysctl kernel.perf_event_paranoid=2"
        found.append(Check(name="perf", is_ok=True if is_open else None, seen=seen, fix=fix))
    return found


def _isal_check() -> Check:
    is_there = find_spec("isal") is not None
    seen = "installed" if is_there else "not installed: traces are compressed four times slower"
    return Check(name="isal", is_ok=True if is_there else None, seen=seen, fix="" if is_there else "pip install isal")


def _scanner_check() -> Check:
    is_used, said, fix = library.state()
    seen = said if is_used else f"{said}: Python reads traces, some three times slower"
    return Check(name="scanner", is_ok=True if is_used else None, seen=seen, fix=fix)


def _disk_check() -> Check:
    free = shutil.disk_usage(".").free
    is_writable = os.access(".", os.W_OK)
    seen = f"{free / 1e9:.1f} GB free here" if is_writable else "this folder cannot be written to"
    return Check(name="disk", is_ok=is_writable and free > 1e9, seen=seen, fix="" if is_writable else "use -o DIR")


def gpu_facts() -> Sequence[dict[str, str]]:
    """What nvidia-smi says of each GPU: driver, clocks in MHz, throttle reasons; () without it."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return ()
    fields = ("name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks_throttle_reasons.active")
    command = [path, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [line.split(", ") for line in done.stdout.splitlines() if line]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]
