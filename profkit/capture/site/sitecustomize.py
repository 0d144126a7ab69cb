# ruff: noqa: INP001, PTH100, PTH120 - no package, and no pathlib at the start of every Python
"""profkit's way into an unmodified script: does nothing until torch is imported, then starts the capture.

Python imports this at start-up because `profkit capture` put its folder on PYTHONPATH. Another `sitecustomize` that
it hides is run as well. Standard library only, Python 3.9 syntax; whatever fails here is one line on stderr.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # not from typing: this runs at the start of every Python
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def _chain(here: str) -> None:
    """Run the sitecustomize that this one hides, as Python would have; leave sys.path as it would have been."""
    import importlib.machinery
    import importlib.util

    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _complain(error: Exception) -> None:
    """Say why there is no capture; raises nothing."""
    try:
        _make_package(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        from _profkit_capture.command import raised, tell  # type: ignore[import-not-found]

        tell(f"no capture, but the script runs on ({raised(error)})")
    except Exception:  # noqa: BLE001, S110 - profkit's own files are gone: nothing is left to say it with
        pass


class _TorchWatch:
    """A finder that finds nothing by itself: it lets torch be found and imported, then calls `act`."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._is_looking = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torch" or self._is_looking:
            return None
        import importlib.util

        self._is_looking = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self._is_looking = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                self._act()
            except Exception as error:  # noqa: BLE001
                _complain(error)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _start(home: str) -> None:
    """Import the capture and start it."""
    _make_package(home)
    from _profkit_capture.inside import inject  # type: ignore[import-not-found]

    inject.start()


def _make_package(home: str) -> None:
    """Give the capture package a name of its own: profkit may not be installed here."""
    import types

    if "_profkit_capture" not in sys.modules:
        package = types.ModuleType("_profkit_capture")
        package.__path__ = [home]
        sys.modules["_profkit_capture"] = package


def _arm() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        if os.environ.get("PROFKIT_CAPTURE"):
            sys.meta_path.insert(0, _TorchWatch(lambda: _start(os.path.dirname(here))))
    except Exception as error:  # noqa: BLE001
        _complain(error)
    _chain(here)


_arm()
