"""`.ncu-rep` files to profiles, through NVIDIA's own reader.

The format is not documented. PyPI's `ncu-report` reads it without a GPU and without ncu; its licence is NVIDIA's, so
it is an extra (`profkit[ncu]`). On a damaged file its native code may end the whole process (a failed check aborts),
so it runs in one of its own: `python -m profkit.ingest.ncu.rep_file FILE` writes the profiles as JSON. It takes a file
cut short for an empty one, so whether a report is whole is told before by the sizes of its blocks. As in the folder
FileFormat of an Nsight Compute installation: a magic number, the size of the file's header (uint32) and the header,
then blocks: the size of a header (uint32), the header (a protobuf), the payload, whose size it states.
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
from typing import Any, BinaryIO, Final

import msgspec

from profkit import files
from profkit.errors import MissingCapabilityError, TraceFormatError
from profkit.ingest.ncu.source import MAGIC
from profkit.ingest.ncu.values import capability_of, is_nan, share_of, value_of
from profkit.model.kernel import KernelProfile, Rule
from profkit.model.names import function_name

_SIZE_BYTES: Final = 4
_PAYLOAD_SIZE: Final = 5  # the field of a block's header
_MOST_HEADER_BYTES: Final = 2**26  # chosen: it holds tables of names; the largest at hand has 66 KB
_MOST_BLOCKS: Final = 10**6  # chosen: a launch has one or two
_MOST_FIELDS: Final = 64  # chosen: a header has nine
_VARIES, _LONG, _COUNTED, _SHORT = 0, 1, 2, 5  # how protobuf writes a field
_MOST_DIGITS: Final = 10  # of 7 bits


def is_cut_short(path: Path) -> bool:
    """Whether a report does not end where its last block does; False for a compressed one, which says it itself."""
    n_bytes = path.stat().st_size
    with files.open_file(path) as file:
        if file.read(len(MAGIC)) != MAGIC:
            return False
        place = len(MAGIC)
        for _ in range(_MOST_BLOCKS):
            header = _header(file, place)
            if not header:
                return True
            place += _SIZE_BYTES + len(header) + (_payload_bytes(header) if place > len(MAGIC) else 0)
            if place >= n_bytes:
                break
    return place != n_bytes


def _header(file: BinaryIO, place: int) -> bytes:
    """The header whose size stands at this place; b"" where it is cut short or larger than any."""
    file.seek(place)
    size = int.from_bytes(file.read(_SIZE_BYTES), "little")
    header = file.read(size) if size <= _MOST_HEADER_BYTES else b""
    return header if len(header) == size else b""


def _payload_bytes(header: bytes) -> int:
    """What a block's header says of its payload; 0 where it says nothing."""
    place = 0
    for _ in range(_MOST_FIELDS):
        if place >= len(header):
            break
        key, place = _number(header, place)
        field, kind = key >> 3, key & 7
        value, place = _number(header, place) if kind in {_VARIES, _COUNTED} else (0, place)
        if field == _PAYLOAD_SIZE and kind == _VARIES:
            return value
        place += {_COUNTED: value, _LONG: 8, _SHORT: 4}.get(kind, 0)
    return 0


def _number(header: bytes, place: int) -> tuple[int, int]:
    """A number in digits of 7 bits, the lowest first, and the place behind it; the last digit has its top bit clear."""
    value = 0
    for shift, byte in enumerate(header[place : place + _MOST_DIGITS]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, place + shift + 1
    return value, len(header)


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
