"""The steps of action.yml as GitHub runs them: bash, inputs as variables, files for what is handed on."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.release.environments import ROOT

ACTION: Final[dict[str, Any]] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
_EXPRESSION: Final = re.compile(r"\$\{\{\s*inputs\.([\w-]+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Job:
    """A job on a runner: where it works, its temporary folder, the files that steps write to."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("work", "temp"):
            (self.folder / name).mkdir(parents=True)

    @property
    def work(self) -> Path:
        """The checked-out repository of the user."""
        return self.folder / "work"

    @property
    def command(self) -> Path:
        """Where the action installs profkit."""
        return self.folder / "temp" / "profkit" / "bin" / "profkit"

    def step(self, number: int, inputs: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """What a step did; raises ValueError for an input that the action has not, as GitHub warns."""
        step = ACTION["runs"]["steps"][number]
        if unknown := inputs.keys() - ACTION["inputs"].keys():
            raise ValueError(f"no inputs: {', '.join(sorted(unknown))}")
        values = {name: inputs.get(name, said.get("default")) for name, said in ACTION["inputs"].items()}
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PROFKIT"))}
        env |= {
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "RUNNER_TEMP": str(self.folder / "temp"),
        }
        env |= {name: _EXPRESSION.sub(lambda found: values[found[1]], text) for name, text in step["env"].items()}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # as GitHub's `shell: bash`
        return subprocess.run(shell, capture_output=True, text=True, check=False, cwd=self.work, env=env, timeout=600)

    def outputs(self) -> dict[str, str]:
        """What the steps handed on."""
        file = self.folder / "output"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return dict(line.split("=", 1) for line in lines)

    def summary(self) -> str:
        """The page of the job."""
        file = self.folder / "summary"
        return file.read_text(encoding="utf-8") if file.exists() else ""
