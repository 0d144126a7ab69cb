"""profkit's own packages outside this one, loaded by their paths: in the traced interpreter there is no profkit.

Standard library only, Python 3.9 syntax, like the packages that it loads.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


@cache
def files() -> Any:
    """Give profkit.files."""
    return _loaded("files")


@cache
def redact() -> Any:
    """Give profkit.redact."""
    return _loaded("redact")


def _loaded(name: str) -> Any:
    """Give a package of profkit's under a name of its own, by which its files find each other."""
    home = Path(__file__).resolve().parent.parent / name
    spec = spec_from_file_location(f"_profkit_{name}", home / "__init__.py", submodule_search_locations=[str(home)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{home} is gone")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
