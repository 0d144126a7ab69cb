"""`.ncu-rep` files to profiles, through NVIDIA's own reader.

The format is not documented. PyPI's `ncu-report` reads it without a GPU and without ncu; its licence is NVIDIA's, so
it is an extra (`profkit[ncu]`). On a damaged file its native code may end the whole process (a failed check aborts),
so it runs in one of its own: `python -m profkit.ingest.ncu.rep_file FILE` writes the profiles as JSON.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from profkit.errors import MissingCapabilityError, TraceFormatError
from profkit.ingest.ncu.blocks import is_cut_short
from profkit.ingest.ncu.values import capability_of, is_nan, share_of, value_of
from profkit.model.kernel import KernelProfile, Rule
from profkit.model.names import function_name

_KINDS: Final = {1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
_LINK: Final = re.compile(r"@(section|url|source|sass):([^@:]{0,300}):([^@]{0,1000})@")
_SCOPES: Final = {1: "local", 2: "global"}  # ncu_report.SpeedupType; the pages of ncu print the words
_DEMANGLED: Final = "NameBase_DEMANGLED"
_ROOT: Final = Path(__file__).resolve().parents[2]
_LONGEST_S: Final = 60  # chosen: the reader takes 2 ms per MB; and a second for each MB there is
_MOST_MEMORY_BYTES: Final = 8 * 2**30  # of addresses; a report of 100 KB takes 0.2 GB of memory
_MOST_SAID_BYTES: Final = 2**30  # chosen: what a child tells of some hundred thousand launches
_AGAIN: Final = "record it again, or read another page: ncu --import FILE --csv --page raw --print-units base"


def read_rep(path: Path, source: str) -> list[KernelProfile]:
    """The launches of a report; raises MissingCapabilityError without `ncu-report`, TraceFormatError if broken."""
    if is_cut_short(path):
        raise TraceFormatError(f"{source} is cut short: it ends before its last block does", hint=_AGAIN)
    if find_spec("ncu_report") is None:
        raise MissingCapabilityError(
            f"{source} needs NVIDIA's reader of .ncu-rep files, which is not installed",
            hint="pip install ncu-report; or, with ncu: ncu --import FILE --csv --page raw --print-units base",
        )
    known = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    # -P: the folder one stands in is no place to import from.
    command = [sys.executable, "-P", "-m", "profkit.ingest.ncu.rep_file", str(path.absolute()), source]
    try:
        done = subprocess.run(  # noqa: S603 - ourselves
            command,
            env={**os.environ, "PYTHONPATH": known},
            check=False,
            capture_output=True,
            timeout=_LONGEST_S + path.stat().st_size / 10**6,
        )
        if done.returncode == 0:
            return msgspec.json.decode(done.stdout, type=list[KernelProfile])
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        pass
    raise TraceFormatError(f"{source}: ncu-report cannot read it: cut short or damaged", hint=_AGAIN)


def profiles_of(module: Any, path: str, source: str) -> list[KernelProfile]:
    """The launches that NVIDIA's module finds in a file, in its order; raises ValueError where one is cut off."""
    context = module.load_report(path)
    ranges = [context.range_by_idx(place) for place in range(context.num_ranges())]
    actions = [group.action_by_idx(place) for group in ranges for place in range(group.num_actions())]
    for number, action in enumerate(actions):
        if not action.metric_names():  # what the module gives for the rest of a file that was cut short
            raise ValueError(f"launch {number} of {len(actions)} has no metrics")
    return [_profile(action, number, source) for number, action in enumerate(actions)]


def _profile(action: Any, number: int, source: str) -> KernelProfile:
    metrics: dict[str, float] = {}
    texts: dict[str, str] = {}
    unmeasured: list[str] = []
    for name in action.metric_names():
        value: Any = action.metric_by_name(name).value()
        if isinstance(value, str):
            texts[name] = value
        elif (given := value_of(name, value)) is not None:
            metrics[name] = given
        elif is_nan(value):
            unmeasured.append(name)
    name = str(action.name(getattr(action, _DEMANGLED))) if hasattr(action, _DEMANGLED) else str(action.name())
    return KernelProfile(
        source=source,
        number=number,
        name=name,
        function=function_name(name),
        grid=_size(metrics, "launch__grid_dim"),
        block=_size(metrics, "launch__block_dim"),
        device=_whole(metrics.get("launch__device_id")),
        device_name=texts.get("device__attribute_display_name", ""),
        compute_capability=capability_of(metrics),
        metrics=metrics,
        unmeasured=tuple(unmeasured),
        rules=tuple(_rule(given) for given in action.rule_results_as_dicts()),
    )


def _size(metrics: dict[str, float], prefix: str) -> tuple[int, int, int] | None:
    sizes = [_whole(metrics.get(f"{prefix}_{axis}")) for axis in "xyz"]
    return (sizes[0] or 1, sizes[1] or 1, sizes[2] or 1) if all(size is not None for size in sizes) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _rule(given: dict[str, Any]) -> Rule:
    message = given.get("rule_message") or {}
    estimate = given.get("speedup_estimation") or {}
    percent = estimate.get("speedup")
    return Rule(
        id=str(given.get("rule_identifier", "")),
        kind=_KINDS.get(message.get("type", 0), ""),
        message=": ".join(filter(None, (message.get("title", ""), _plain(message.get("message", ""))))),
        speedup_fraction=share_of(percent) if isinstance(percent, (int, float)) else None,
        speedup_scope=_SCOPES.get(estimate.get("type", 0), ""),
    )


def _plain(message: str) -> str:
    """A rule's message as ncu prints it: links to sections and lines by their text, to pages with their address."""
    return _LINK.sub(lambda link: f"{link[2]} ({link[3]})" if link[1] == "url" else link[3].rpartition(":")[2], message)


def _limited() -> None:
    """Bound what a report can make its reader take, and leave no image of its memory behind when it is ended."""
    if sys.platform == "win32":
        return
    import resource

    for what, most in ((resource.RLIMIT_AS, _MOST_MEMORY_BYTES), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(what)
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _main(path: str, source: str) -> int:
    _limited()
    said = msgspec.json.encode(profiles_of(import_module("ncu_report"), path, source))
    if len(said) > _MOST_SAID_BYTES:
        return 1
    sys.stdout.buffer.write(said)
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
