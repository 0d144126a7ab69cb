"""profkit's own modules outside this package, loaded by their paths: in the traced interpreter there is no profkit.

Standard library only, Python 3.9 syntax, like the modules that it loads.
"""

from __future__ import annotations

import shlex
import sys
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final


def quoted(folder: Path) -> str:
    """A folder for a command line, from here where it lies below."""
    here = Path.cwd()
    below = folder.relative_to(here) if here in folder.parents else folder
    return shlex.quote(str(below))


@cache
def _loaded(name: str) -> Any:
    """A module or package of profkit's under a name of its own, by which a package's files find each other."""
    home = Path(__file__).resolve().parent.parent / name
    if home.is_dir():
        path, folders = home / "__init__.py", [str(home)]
    else:
        path, folders = home.with_suffix(".py"), None
    spec = spec_from_file_location(f"_profkit_{name}", path, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is gone")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


files: Final = partial(_loaded, "files")
"""Give the package `profkit.files`."""
redact: Final = partial(_loaded, "redact")
"""Give the package `profkit.redact`."""
plain: Final = partial(_loaded, "plain")
"""Give the module `profkit.plain`."""
units: Final = partial(_loaded, "units")
"""Give the module `profkit.units`."""
