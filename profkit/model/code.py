"""Places in the user's code: a line or a function, the call made there, the module around it."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

import msgspec

_MOST_CHARS: Final = 80
_MODULE_CHARS: Final = 48
OF_DELAY: Final = "delay"
OF_WORKERS: Final = "workers"
OF_THREAD: Final = "thread"


class Phase(IntEnum):
    """The part of a training step that something belongs to."""

    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3

    @property
    def word(self) -> str:
        """Its name in reports and JSON."""
        return self.name.lower()


_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
ACTING: Final = frozenset(
    {"act", "action", "actions", "actor", "collect", "env", "envs", "explore", "labels", "pi", "policy", "pseudo"}
    | {"rollout", "rollouts", "target", "targets"}
)
"""Words of what makes the data or the targets that are trained on: it is needed. Chosen."""


class CodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """One place in the user's own code. What the trace does not tell is "" or 0.

    torch.profiler records where a function is defined, not the line that runs: `line` is known only where the capture
    recorded it as well.
    """

    file: str
    """As the trace writes it: relative to a folder of `sys.path`, or whole."""
    function: str
    defined: int = 0
    """The line where the function begins; 0 for one that was running when the recording began."""
    line: int = 0
    """The line that made the call."""
    text: str = ""
    """What stands in that line."""
    call: str = ""
    """What it calls: `Tensor.item()`, `Linear`, `backward()`."""
    module: str = ""
    """The innermost module around it: its qualified name, else its path of classes."""
    library: str = ""
    """The innermost function of an installed package other than torch, where that package has the module."""
    is_generated: bool = False
    """Whether it runs in code that torch.compile wrote."""
    inside: str = ""
    """Of a package that runs the loop, called by this line: its own line or function, with its name before it."""
    beside: str = ""
    """The function around it that such a loop calls beside training: a callback, logging."""

    @property
    def single_words(self) -> frozenset[str]:
        """The words of its function, its line and what it calls, each part of a name on its own, in lower case."""
        return frozenset(word.lower() for word in _WORDS.findall(f"{self.function} {self.text} {self.call}"))

    @property
    def short_file(self) -> str:
        """The last two parts of the file's path."""
        return "/".join(self.file.split("/")[-2:])

    @property
    def name(self) -> str:
        """`train.py:83 in step()`; where only its definition is known, `step() (train.py:60)`."""
        if self.function == "<module>":
            return f"{self.short_file}:{self.line}" if self.line else f"{self.short_file} outside functions"
        function = self.function if self.function.endswith(">") else f"{self.function}()"
        if self.line:
            return f"{self.short_file}:{self.line} in {function}"
        if self.defined:
            return f"{function} ({self.short_file}:{self.defined})"
        return f"{function} in {self.short_file}"

    @property
    def words(self) -> str:
        """The place with the line's text, or the call made there."""
        said = f": {_cut(self.text)}" if self.text else f" calling {_cut(self.call)}" if self.call else ""
        made = f", by {self.library}" if self.library else ""
        if self.inside:
            return f"{self.inside}{made}, called by {self.name}"
        return self.name + said + made + (", compiled" if self.is_generated else "")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else text[: _MOST_CHARS - 3] + "..."


class PlaceShare(msgspec.Struct, frozen=True, kw_only=True):
    """A place, and what it has of a time."""

    place: CodePlace
    phase: Phase
    """The phase in which most of it lies."""
    ns: int
    """In the window, all of it."""
    share: float
    """Of the time that it is a part of, 0-1."""
    count: int
    """Rows: calls, kernels, operators or stretches of time."""
    n_modules: int = 1
    """Modules that come by here; the place names one, or with `*` for the parts in which several differ."""
    of: str = ""
    """What the share is of: "" the time of what has the place, `OF_DELAY` the delay of a late rank, `OF_WORKERS` the
    time that loader workers take for batches, `OF_THREAD` what another thread did, else the id of the finding that has
    the place as well."""

    @property
    def words(self) -> str:
        """The place and its module in a sentence."""
        module = self.place.module
        if len(module) > _MODULE_CHARS:
            module = "..." + module[-_MODULE_CHARS:]
        return self.place.words + (f", in {module}" if module else "")


class ModuleUse(msgspec.Struct, frozen=True, kw_only=True):
    """A module, or several that differ in a number (`Model/Block[*]`), with all that lies inside; times in ns."""

    name: str
    depth: int
    n_modules: int
    work_ns: int
    """Kernels launched inside, on a CPU operators, over the window."""
    forward_ns: int
    backward_ns: int
    n_rows: int
    """How many kernels, or operators."""
    idle_ns: int
    """Idle time of the device that ends with a launch inside; 0 on a CPU."""
