"""Where a tool stands in a command: between the launcher and each Python, so that each rank has its report."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PYTHON: Final = re.compile(r"python[\d.]*w?(?:\.exe)?")
_TORCHRUN_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")
_TORCHRUN_SWITCHES: Final = frozenset({"standalone", "run_path", "use_env", "virtual_local_rank", "help"})
"""Options of torchrun without a value; all others take one, with = or as the next word."""
_RANK_OF: Final = {
    "srun": "SLURM_PROCID",
    "mpirun": "OMPI_COMM_WORLD_RANK",
    "mpiexec": "OMPI_COMM_WORLD_RANK",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command cut in two: what starts the ranks, and what each of them runs.

    `rank_variable` is what the launcher calls the rank, "" where nothing starts ranks or it cannot be told.
    """

    before: tuple[str, ...]
    program: tuple[str, ...]
    rank_variable: str = ""

    @property
    def report_name(self) -> str:
        """The name of a report: one per rank by the macro both tools know, else one for all."""
        return f"rank%q{{{self.rank_variable}}}" if self.rank_variable else "profile"


def cut(command: Sequence[str]) -> Launch:
    """Launcher and program; a launcher that is not known is part of the program, and all ranks share a report."""
    words = tuple(command)
    name = Path(words[0]).name if words else ""
    if name == "torchrun":
        return _torchrun(words[:1], words[1:], _python_beside(words[0])) or Launch(before=(), program=words)
    if _PYTHON.fullmatch(name) and words[1:2] == ("-m",) and words[2:3] and words[2] in _TORCHRUN_MODULES:
        return _torchrun(words[:3], words[3:], words[0]) or Launch(before=(), program=words)
    if name in _RANK_OF:
        place = next((place for place, word in enumerate(words) if _PYTHON.fullmatch(Path(word).name)), None)
        if place is not None:
            return Launch(before=words[:place], program=words[place:], rank_variable=_RANK_OF[name])
    return Launch(before=(), program=words)


def _torchrun(launcher: tuple[str, ...], words: tuple[str, ...], python: str) -> Launch | None:
    """Cut at the script. `--no-python` makes torchrun start a program instead of a script; RANK is set in it."""
    kept: list[str] = []
    is_module = is_program = False
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, equals, _ = words[place].lstrip("-").replace("-", "_").partition("=")
        is_module |= name in {"m", "module"}
        is_program |= name == "no_python"
        takes_next = not equals and name not in {*_TORCHRUN_SWITCHES, "m", "module", "no_python"}
        if name not in {"m", "module", "no_python"}:
            kept += words[place : place + 1 + takes_next]
        place += 1 + takes_next
    script = words[place:]
    if not script:
        return None
    program = script if is_program else (python, "-u", *(("-m",) if is_module else ()), *script)
    return Launch(before=(*launcher, *kept, "--no-python"), program=program, rank_variable="RANK")


def _python_beside(torchrun: str) -> str:
    """The Python that torchrun would use: the one in its folder; `python` where that is the one on PATH."""
    found = shutil.which(torchrun)
    beside = Path(found).parent / "python" if found else None
    if beside is None or not beside.exists() or shutil.which("python") == str(beside):
        return "python" if shutil.which("python") else sys.executable
    return str(beside)


def placed(launch: Launch, tool: Sequence[str], ranks: str) -> tuple[str, ...]:
    """The command with the tool in front of the program, of the ranks asked for ("all", "0", "0,3") alone.

    The other ranks run the program as it is: a shell chooses by the rank's variable, and gives itself up for it.
    """
    if ranks == "all" or not launch.rank_variable:
        return (*launch.before, *tool, *launch.program)
    chosen = "|".join(part.strip() for part in ranks.split(","))
    choice = f'case "${launch.rank_variable}" in {chosen}) exec {shlex.join(tool)} "$@";; *) exec "$@";; esac'
    return (*launch.before, "sh", "-c", choice, "sh", *launch.program)
