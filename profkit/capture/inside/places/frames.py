"""What the profiler knows of Python calls beside what it writes: from which line each was made, and of which object.

Read from the profiler's tree of events, which torch's own memory profiler reads as well. Runs in the traced process:
standard library and torch only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .owners import Owners

_MODULE = "nn.Module: "


class Frames:
    """The Python calls of a recording.

    `modules` has the id of each module by its name in the trace, `files` the names there of the script's own files,
    `lines` (start in Unix ns, line) of each call that was made from one of those.
    """

    def __init__(self) -> None:
        self.modules: dict[str, int] = {}
        self.files: list[str] = []
        self.lines: list[tuple[int, int]] = []

    @classmethod
    def of(cls, tree: Sequence[Any]) -> Frames:
        """The calls of a tree of events; raises AttributeError where this torch's is another one."""
        from torch._C import _profiler

        found, owners = cls(), Owners()
        call, c_call = _profiler._ExtraFields_PyCall, _profiler._ExtraFields_PyCCall  # noqa: SLF001
        lines: dict[int, int] = {}
        waiting = list(tree)
        while waiting:
            event = waiting.pop()
            waiting += event.children
            fields = event.extra_fields
            kind = type(fields)
            if kind is not call and kind is not c_call:
                continue
            if kind is call:
                owners.is_own(fields.callsite.file_name)
                module = fields.module
                if module is not None:
                    found.modules[event.name.replace(_MODULE, "", 1)] = int(module.self_ptr)
            caller = fields.caller
            if owners.is_own(caller.file_name):
                start_ns = event.start_time_ns
                lines[start_ns] = caller.line_number if start_ns not in lines else 0
        found.files = owners.own_names()
        found.lines = sorted((start_ns, line) for start_ns, line in lines.items() if line > 0)
        return found
