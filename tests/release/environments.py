"""Pythons of this machine, and environments that hold one wheel and what it asks for."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
"""Those that pyproject.toml's classifiers name."""
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: Final = frozenset(PROJECT["optional-dependencies"])
_INSTALL_S: Final = 900
_RUN_S: Final = 120
_LEAKS: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PROFKIT_NATIVE")
"""Variables that would show an installed profkit the checkout, or another Python."""


def python_of(version: str) -> Path | str:
    """An interpreter of a version, or why there is none."""
    done = subprocess.run([ROOT / ".ci" / "python", version], capture_output=True, text=True, check=False)
    return Path(done.stdout.strip()) if done.returncode == 0 else done.stderr.strip()


def pip(*words: object, python: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run this environment's pip, on another environment if told; its error as text, empty where it worked."""
    target = [] if python is None else ["--python", str(python)]
    line = [sys.executable, "-m", "pip", "--disable-pip-version-check", *target, *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=_INSTALL_S, env=env)
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[-2000:]


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment without pip; `folder` is its own."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def run(self, *words: object, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """What `words` did with this environment first on PATH, in its own folder unless told."""
        env = {name: value for name, value in os.environ.items() if name not in _LEAKS}
        env |= {"PATH": f"{self.folder / 'bin'}:{env.get('PATH', '')}", "COLUMNS": "80", "NO_COLOR": "1"} | variables
        line = list(map(str, words))
        return subprocess.run(
            line, capture_output=True, text=True, check=False, cwd=cwd or self.folder, env=env, timeout=_RUN_S
        )

    def profkit(self, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """What the installed command did."""
        return self.run(self.folder / "bin" / "profkit", *words, **variables)

    def distributions(self) -> list[str]:
        """Names of what is installed."""
        return sorted(path.name.partition("-")[0].lower() for path in self.packages.glob("*.dist-info"))

    def size_bytes(self) -> int:
        """Bytes of all that was installed, without compiled Python."""
        return sum(
            path.stat().st_size
            for path in self.packages.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        )


def created(folder: Path, python: Path, wanted: Iterable[object]) -> tuple[Environment, str]:
    """A new environment with what pip was asked for, and pip's error, empty where it worked."""
    done = subprocess.run([python, "-m", "venv", "--without-pip", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        return Environment(folder), done.stderr.strip()
    error = pip(
        "install", "--quiet", "--no-compile", "--only-binary", ":all:", *wanted, python=folder / "bin" / "python"
    )
    return Environment(folder), error
