"""Compile profkit's C where there is a compiler: for `pip install` and `make native`.

Nothing here may fail an install: without a compiler, or where compiling fails, profkit is Python alone and says the
same of traces more slowly (`profkit doctor` says which it is). PROFKIT_NATIVE=0 builds a wheel without it.

    python hatch_build.py           compiles into the checkout; exit code 1, with the compiler's words, where it fails
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # make native: no build, only the compiler
    BuildHookInterface = object

FOLDER = "profkit/native"
UNITS = ("scan.c", "algebra.c")
SOURCES = (
    *UNITS,
    *("memory.h", "text.h", "event.h", "rows.h", "result.h", "select.h"),
    *("search.h", "sets.h", "nesting.h", "order.h", "clocks.h"),
)
NAME = "compiled.library"  # no ending that Python would import
_MOST_S = 120


class CompileError(Exception):
    """Why there is no library."""


def compiled(folder: Path, target: Path, *, flags: tuple[str, ...] = ("-O3",), source: Path | None = None) -> None:
    """Compile the sources of a folder into `target`, whole or not at all; raises CompileError.

    `source` is a program that includes what it tries, in the place of the library.
    """
    crc = 0
    for name in SOURCES:
        crc = zlib.crc32((folder / name).read_bytes(), crc)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    units = [str(folder / name) for name in UNITS]
    shared = ["-shared", "-fPIC", "-fvisibility=hidden", *units] if source is None else [str(source)]
    line = [*_compiler(), "-std=c11", *flags, f"-DPROFKIT_SOURCE={crc}u", *shared, "-o", str(part)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=_MOST_S)  # noqa: S603
        if done.returncode:
            raise CompileError(done.stderr.strip()[-2000:] or f"{line[0]} exits with {done.returncode}")
        part.replace(target)
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(str(error)) from None
    finally:
        part.unlink(missing_ok=True)


def _compiler() -> list[str]:
    """The words that start a C compiler: what CC says, what Python was built with, or a usual one."""
    told = os.environ.get("CC")
    named = [told] if told else [sysconfig.get_config_var("CC") or "", "cc", "gcc", "clang"]
    for words in filter(None, map(shlex.split, named)):
        if shutil.which(words[0]):
            return words
    raise CompileError(f"no C compiler: {', '.join(filter(None, named))}")


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Puts the library into a wheel, or beside its sources for an editable install."""

    scratch = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, if a wheel is built and not told otherwise."""
        if self.target_name != "wheel" or os.environ.get("PROFKIT_NATIVE") == "0":
            return
        folder = Path(self.root, FOLDER)
        try:
            if version == "editable":
                compiled(folder, folder / NAME)
                return
            self.scratch = tempfile.mkdtemp(prefix="profkit-native-")
            library = Path(self.scratch, NAME)
            compiled(folder, library)
        except (CompileError, OSError) as reason:
            self._clear()
            self.app.display_warning(f"profkit without its compiled library: {reason}")
            return
        build_data["force_include"][str(library)] = f"{FOLDER}/{NAME}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Take away what was compiled: the wheel has it."""
        self._clear()

    def _clear(self) -> None:
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


def _platform() -> str:
    """The platform of a wheel for this machine; ctypes asks for no version of Python."""
    from packaging.tags import sys_tags

    return next(
        tag.platform for tag in sys_tags() if "manylinux" not in tag.platform and "musllinux" not in tag.platform
    )


def main() -> int:
    """Compile into the checkout that this file lies in."""
    folder = Path(__file__).parent / FOLDER
    try:
        compiled(folder, folder / NAME)
    except CompileError as reason:
        print(f"hatch_build: {reason}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
