"""What a start of profkit imports: numbers of modules, which a machine's load does not change as it does times."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

Run = Callable[..., str]
"""Runs Python with the words given, and gives its standard error."""

_NOT_OURS: Final = (
    "__editable__",
    "_distutils_hack",
    "_virtualenv",
    "distutils-precedence",
    "sitecustomize",
    "usercustomize",
)


_FOREIGN: Final = """
import sys
from importlib.util import find_spec

names = set(sys.argv[1:]) - set(sys.stdlib_module_names) - {"profkit"}
print(*(name for name in names if find_spec(name)), file=sys.stderr)
"""
"""Prints those of the names that are packages here beyond Python's own library: what is not there may be tried, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One way to start, and the most modules that it may load: of profkit, and of all that Python alone does not."""

    words: tuple[str, ...]
    most_own: int
    most: int
    packages: frozenset[str]
    """Those beyond Python's own library that it may load; msgspec asks for typing_extensions, installed or not."""


def starts(trace: object) -> dict[str, Start]:
    """The starts that have limits. Limits are what 0.2.0 loads and a fifth more."""
    triage = ("-m", "profkit", "triage", str(trace), "--no-cache")
    packages = frozenset({"click", "isal", "msgspec", "numpy", "typing_extensions"})
    return {
        "import profkit": Start(words=("-c", "import profkit"), most_own=3, most=35, packages=frozenset()),
        "profkit --version": Start(
            words=("-m", "profkit", "--version"), most_own=27, most=155, packages=frozenset({"click"})
        ),
        "profkit triage": Start(words=triage, most_own=245, most=495, packages=packages),
        "profkit triage -f json": Start(words=(*triage, "-f", "json"), most_own=250, most=505, packages=packages),
    }


def loaded(stderr: str) -> list[str]:
    """Names of modules in the order of `-X importtime`."""
    lines = (line.rpartition("|") for line in stderr.splitlines() if line.startswith("import time:"))
    return [name.strip() for _, _, name in lines if name.strip() != "imported package"]


def faults(start: Start, run: Run) -> Iterator[str]:
    """What a start loads more than it may."""
    before = set(loaded(run("-X", "importtime", "-c", "pass")))
    modules = [name for name in loaded(run("-X", "importtime", *start.words)) if name not in before]
    own = [name for name in modules if name.partition(".")[0] == "profkit"]
    foreign = set(run("-c", _FOREIGN, *sorted({name.partition(".")[0] for name in modules})).split())
    if not own:
        yield "profkit was not loaded"
    if len(own) > start.most_own:
        yield f"{len(own)} modules of profkit are loaded, at most {start.most_own} are wanted"
    if len(modules) > start.most:
        yield f"{len(modules)} modules are loaded, at most {start.most} are wanted"
    yield from (f"{name} is loaded" for name in sorted(foreign - start.packages) if not name.startswith(_NOT_OURS))
