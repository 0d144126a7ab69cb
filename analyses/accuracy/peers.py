"""What other tools say of the traces of a cell: the largest row of a profile, and Meta's HTA.

`said(folder)` asks each of them about the traces that `profkit run --folder` left. A tool that fails has no answer: its
verdict is "", and its headline says why. Add a tool by a line in TOOLS.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from analyses.accuracy.cell import Said
from analyses.accuracy.tools import self_time
from analyses.accuracy.tools.self_time import Traces

HTA_TIMEOUT_S: Final = 60
"""Chosen: HTA takes three seconds for a trace of ours."""
NO_DEVICE: Final = (
    "HTA measures device rows alone, and these traces have none: on a CPU trace its breakdowns, idle times, overlap and"
    " stragglers fail or are empty"
)
_WORDS: Final = {"compute": "kernel-bound", "idle": "overhead-bound"}


def said(folder: Path) -> dict[str, Said]:
    """What each tool says of the traces in a folder, by the tool's name."""
    try:
        traces = self_time.read(folder)
    except (OSError, ValueError, EOFError) as error:
        return dict.fromkeys(TOOLS, _failed(error))
    return {name: _asked(tool, traces) for name, tool in TOOLS.items()}


def naive(traces: Traces) -> Said:
    """The row with the most self time is the problem, as a table of `key_averages()` sorted by it suggests.

    Of a device, if there is one, by its rows alone. A DataLoader's range means data-bound, a collective comm-bound, a
    copy to or from a device copy-bound. A range that is no operator has what lies between operators as its self time,
    Python that is: overhead-bound. Any other operator or kernel: kernel-bound. Ranks are added up.
    """
    rows = self_time.rows(traces)
    if not rows:
        return Said(bottleneck="", headline="the traces have no rows")
    top = rows[:3]
    return Said(
        bottleneck=top[0].word,
        gain=top[0].share,
        finding_ids=tuple(row.name for row in top),
        classes=tuple(row.word for row in top),
        finding_gains=tuple(row.share for row in top),
        headline=f"{top[0].name} has the most self time: {100 * top[0].share:.1f} % of the steps",
    )


def hta(traces: Traces) -> Said:
    """The largest part of HTA's temporal breakdown; "" where there are no device rows, or HTA fails.

    Mostly compute is kernel-bound. Mostly idle is overhead-bound: of idle time HTA knows waiting for the host, but no
    loader. The rest is comm-bound or copy-bound by the larger total of its kernels. HTA ranks the ranks of any job as
    potential stragglers and says of none that it is one.
    """
    if not traces.has_device:
        return Said(bottleneck="", headline=NO_DEVICE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rank, document in enumerate(traces.documents):
            whole = {**document, "distributedInfo": {"rank": rank, "world_size": len(traces.documents)}}
            (folder / f"rank{rank}.json").write_text(json.dumps(whole), encoding="utf-8")
        return from_hta(_asked_in_child(folder))


def from_hta(parts: Mapping[str, float]) -> Said:
    """A verdict from HTA's percentages of compute, idle and other time, and its totals of communication and memory."""
    shares = {name: parts[name] / 100 for name in ("compute", "idle", "other")}
    lead = max(shares, key=lambda name: shares[name])
    word = _WORDS.get(lead) or ("comm-bound" if parts["communication"] >= parts["memory"] else "copy-bound")
    return Said(
        bottleneck=word,
        gain=None if lead == "compute" else shares[lead],
        classes=(word,),
        headline=f"{lead} has {100 * shares[lead]:.1f} % of the time of the device",
    )


TOOLS: Final[Mapping[str, Callable[[Traces], Said]]] = {"naive": naive, "hta": hta}


def _asked(tool: Callable[[Traces], Said], traces: Traces) -> Said:
    try:
        return tool(traces)
    except Exception as error:  # noqa: BLE001 - what a peer raises is its answer, and must not end the benchmark
        return _failed(error)


def _failed(error: Exception) -> Said:
    return Said(bottleneck="", headline=f"failed: {type(error).__name__}: {error}"[:300])


def _asked_in_child(folder: Path) -> dict[str, Any]:
    command: Sequence[str] = [sys.executable, "-m", "analyses.accuracy.tools.hta_child", str(folder)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=HTA_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().rsplit("\n", 1)[-1])
    answer: dict[str, Any] = json.loads(done.stdout.rsplit("\n", 2)[-2])
    return answer
