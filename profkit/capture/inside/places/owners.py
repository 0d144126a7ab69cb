# ruff: noqa: PTH100, PTH113, PTH117, PTH119, PTH120 - texts, as the profiler has them
"""Whose a file of Python code is: the script's own, or an installed package's, the standard library's, profkit's.

torch's profiler cuts the folders of `sys.path` off the names of files, so that a name alone does not tell. Runs in the
traced process: standard library and torch only.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, Final

import torch

LONGEST_PATH: Final = 4096
MOST_CHARS: Final = 160
_PROFKIT: Final = str(Path(__file__).resolve().parents[3]) + os.sep
_PACKAGES: Final = ("site-packages", "dist-packages")
_TYPED_IN: Final = ("<stdin>", "<ipython-input")
_GIVEN: Final = "<string>"
_GENERATED: Final = "torchinductor_"
_BELOW: Final = frozenset(("torch", "triton", "functorch", "torchgen", "numpy", "typing_extensions", "profkit"))
"""Packages that models are built on: what they call among themselves names no place."""


class Owners:
    """Tells the script's own files by the names that a trace gives them."""

    def __init__(self) -> None:
        self._cut = _cut_prefixes()
        self._loaded = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
        self._own: dict[str, str] = {}
        self._packages: dict[str, str] = {}

    def is_own(self, name: str) -> bool:
        """Whether a file, named as in a trace, is the script's own."""
        return bool(self.path_of(name))

    def path_of(self, name: str) -> str:
        """The path of a file, named as in a trace, "" for one that is not the script's own."""
        if name not in self._own:
            self._own[name] = self._find(name)
        return self._own[name]

    def package_path(self, name: str) -> str:
        """The path of a file of a package built on torch, named as in a trace; "" for any other."""
        self.path_of(name)
        return self._packages.get(name, "")

    def own_names(self) -> list[str]:
        """The names asked for that are of the script's own files."""
        return sorted(name for name, path in self._own.items() if path)

    def package_names(self) -> list[str]:
        """The names asked for that are of files of packages built on torch, or that torch.compile has written."""
        return sorted(self._packages)

    def _find(self, name: str) -> str:
        if name.startswith("<") or os.path.isabs(name):
            paths = [name]
        else:
            paths = [path for path in (prefix + name for prefix in self._cut) if os.path.isfile(path)]
            paths = [path for path in paths if path in self._loaded] or paths
        own = next(filter(is_own_path, paths), "")
        package = next(filter(is_package_path, paths), "")
        if package and not own:
            self._packages[name] = package
        return own


def is_package_path(path: str) -> bool:
    """Whether a file that is not the script's own may name a place all the same: of a model's package, or generated."""
    if _GENERATED in path:
        return True
    inside = re.split(r"[\\/](?:site|dist)-packages[\\/]", path)
    return len(inside) > 1 and re.split(r"[\\/.]", inside[-1])[0] not in _BELOW


def is_own_path(path: str) -> bool:
    """Whether the file of this path is the script's own."""
    if path.startswith("<"):
        return path.startswith(_TYPED_IN) or (path == _GIVEN and _is_given_as_text())
    path = os.path.abspath(path)
    if path.startswith(_PROFKIT) or _GENERATED in path:
        return False
    if path.startswith(_main_package()):
        return True
    return not path.startswith(_libraries()) and not any(f"{os.sep}{name}{os.sep}" in path for name in _PACKAGES)


def place_of(code: CodeType) -> tuple[str, str, int]:
    """Path, name and first line of a function, no longer than what is read back."""
    return os.path.abspath(code.co_filename)[:LONGEST_PATH], code.co_name[:MOST_CHARS], code.co_firstlineno


def shown_path(path: str) -> str:
    """A path as the profiler writes it, without the folder of `sys.path` that it lies in."""
    return next((path[len(prefix) :] for prefix in _cut_prefixes() if path.startswith(prefix)), path)


def _cut_prefixes() -> list[str]:
    """What the profiler cuts off the paths of files; the longest that fits first."""
    try:
        from torch.profiler.python_tracer import _prefix_regex

        return list(_prefix_regex())
    except Exception:  # noqa: BLE001 - it is torch's own and may go
        return sorted({os.path.abspath(entry) + os.sep for entry in sys.path}, reverse=True)


@cache
def _libraries() -> tuple[str, ...]:
    """The folders of the standard library, of installed packages and of torch, which may lie in its sources."""
    named: list[Any] = [sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    named += getattr(site, "getsitepackages", list)()
    named += [getattr(site, "getusersitepackages", str)(), os.path.dirname(str(torch.__file__))]
    return tuple({os.path.abspath(folder) + os.sep for folder in named if folder})


@cache
def _main_package() -> tuple[str, ...]:
    """The folder of an installed package that is run by `python -m`: what it trains with is the user's code here."""
    spec: Any = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = str(getattr(spec, "name", "") or "").partition(".")[0]
    package = sys.modules.get(name)
    path = getattr(package, "__file__", None)
    if name in ("", "torch", "__main__", "profkit") or not path or os.path.basename(path) != "__init__.py":
        return ()
    folder = os.path.dirname(os.path.abspath(path)) + os.sep
    is_standard = folder.startswith(str(sysconfig.get_paths().get("stdlib"))) and not any(
        name in folder for name in _PACKAGES
    )
    return () if is_standard else (folder,)


def _is_given_as_text() -> bool:
    """Whether the script is `python -c TEXT`."""
    main: Any = sys.modules.get("__main__")
    return not hasattr(main, "__file__") and "-c" in getattr(sys, "orig_argv", ())
