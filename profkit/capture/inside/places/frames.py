"""What the profiler knows of Python calls beside what it writes: from which line each was made, and of which object.

Read from the profiler's tree of events, which torch's own memory profiler reads as well. Runs in the traced process:
standard library and torch only.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import Any, Final

from torch.nn import Module

from ..record.recorder import Recorder
from .names import Held, qualified
from .owners import Owners

_MODULE: Final = "nn.Module: "
_MOST_CALLS: Final = 100_000
_MOST_TEXTS: Final = 2_000
_MOST_CHARS: Final = 160


class Frames:
    """The Python calls of a recording.

    `modules` has the id of each module by its name in the trace, `files` the names there of the script's own files,
    `package_files` those of packages that models come from,
    `calls` when each call began that was made from the script's own files (`unix_ns`) and the `line` it was made from,
    and each that a package made of its own, of another one's or of the script's functions; `texts` what stands in such
    a line, by "file:line".
    """

    def __init__(self) -> None:
        self.modules: dict[str, int] = {}
        self.files: list[str] = []
        self.package_files: list[str] = []
        self.calls: dict[str, list[int]] = {"unix_ns": [], "line": []}
        self.texts: dict[str, str] = {}

    @classmethod
    def of(cls, tree: Sequence[Any]) -> Frames:
        """The calls of a tree of events; raises AttributeError where this torch's is another one."""
        from torch._C import _profiler

        found, owners = cls(), Owners()
        call, c_call = _profiler._ExtraFields_PyCall, _profiler._ExtraFields_PyCCall  # noqa: SLF001
        waiting = list(tree)
        while waiting:
            event = waiting.pop()
            waiting += event.children
            fields = event.extra_fields
            kind = type(fields)
            if kind is call:
                owners.is_own(fields.callsite.file_name)
                if fields.module is not None:
                    found.modules[event.name.replace(_MODULE, "", 1)] = int(fields.module.self_ptr)
                callee = fields.callsite.file_name
                is_theirs = bool(owners.path_of(callee) or owners.package_path(callee))
                path = owners.path_of(fields.caller.file_name) or is_theirs * owners.package_path(
                    fields.caller.file_name
                )
                found._called(event.start_time_ns, fields.caller, path)
            elif kind is c_call:
                found._called(event.start_time_ns, fields.caller, owners.path_of(fields.caller.file_name))
        found.files, found.package_files = owners.own_names(), owners.package_names()
        return found

    def _called(self, unix_ns: int, caller: Any, path: str) -> None:
        """Keep the line of a call that the file of this path made, "" for one whose lines are not told."""
        file, line = caller.file_name, caller.line_number
        if line <= 0 or not path or len(self.calls["line"]) >= _MOST_CALLS:
            return
        self.calls["unix_ns"].append(unix_ns)
        self.calls["line"].append(line)
        place = f"{file}:{line}"
        if place not in self.texts and len(self.texts) < _MOST_TEXTS:
            self.texts[place] = linecache.getline(path, line).strip()[:_MOST_CHARS]


def found_in(recorder: Recorder, held: Sequence[Held], called: Sequence[Module]) -> dict[str, Any]:
    """What a recording with stacks says of the script's code, as plain values; raises where torch's tree is another."""
    frames = Frames.of(recorder.tree())
    modules = qualified(frames.modules, held, called)
    files = {"user_files": frames.files, "package_files": frames.package_files}
    return {"modules": modules, **files, "calls": frames.calls, "texts": frames.texts}
