"""The one place where text that profkit did not write becomes a command, or a line on a terminal.

Traces, exports, file names and reports of other tools are data. A command is kept as its words (`CommandLine`) and only
`text` turns them into a line, each word quoted, so that a POSIX shell which is given the line runs the first word and
reads nothing into the others. What a trace says it was recorded with (`recorded`) is taken only if it is the words of
one program; `docs/nsight.md` says what becomes of it. No command is given to a shell by profkit itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Final

import msgspec

from profkit.errors import UsageError
from profkit.plain import clean as clean  # noqa: PLC0414 - given here to all that is not loaded by its path

MAX_COMMAND_LENGTH: Final = 4096
"""Characters of a recorded command, quoted: more than srun with a page of overrides takes, and still read by a person
before it is pasted (chosen)."""

_QUOTED: Final = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.")
_OPERATOR: Final = re.compile(r"[;&|<>()`]|\$\(|(?<!\S)#")
"""What makes a shell see more than one program and its words: lists, pipes, files, substitutions, comments."""
_SUBSTITUTION: Final = re.compile(r"\"(?:[^\"\\`$]|\\.|\$(?!\())*(?:`|\$\()")
"""A substitution inside double quotes."""
_NO_PROGRAM: Final = re.compile(r"-|\w+=")
"""How a word begins that is no program: an option of whatever stands before it, or a variable for a shell to set."""


class CommandLine(msgspec.Struct, frozen=True):
    """A program and its arguments as words; every character of them can be printed."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.words or not all(word.isprintable() for word in self.words):
            raise ValueError("a command line is one word or more, of characters that can be printed")

    @property
    def text(self) -> str:
        """The line to paste: each word quoted as a POSIX shell needs it."""
        return shlex.join(self.words)

    @property
    def may_run_python(self) -> bool:
        """Whether Python may run the program, by its words alone."""
        return may_run_python(self.words)

    @property
    def starts_others(self) -> bool:
        """Whether the job runs in processes that this command starts, by its words alone."""
        return bool(PurePath(self.words[0]).name in _STARTERS or _RANK_STARTER.search(f"{self.text} "))

    def under(self, own: str, *words: str) -> CommandLine:
        """The line in which another program runs this one behind `--`; its own words as `line_of` takes them."""
        return line_of(own, *words, "--", *self.words)

    def given(self, *variables: str) -> CommandLine:
        """The line that runs this one with variables of the environment: env takes no `--` before the program."""
        return line_of("env", *variables, *self.words)


_PYTHON: Final = re.compile(r"i?(?:python|pypy)[\d.]{0,8}w?(?:\.exe)?")
_SCRIPTS: Final = (".py", ".pyc", ".pyz", ".ipynb", ".sh", ".bash")
_STARTERS: Final = frozenset(
    (
        *("accelerate", "apptainer", "bash", "composer", "conda", "deepspeed", "docker", "env", "horovodrun"),
        *("jupyter", "lightning", "make", "mamba", "micromamba", "mpiexec", "mpirun", "nice", "nohup", "numactl"),
        *("pixi", "podman", "poetry", "pytest", "ray", "setsid", "sh", "singularity", "srun", "stdbuf", "sudo"),
        *("taskset", "time", "timeout", "torchrun", "torchx", "uv", "uvx", "vllm", "xargs", "zsh"),
    )
)
"""Programs that are written in Python, or start others that may be."""


def may_run_python(words: Sequence[str]) -> bool:
    """Whether Python may run a command, by its words alone: a name of Python or of a script in them, or a launcher.

    Only in Python can profkit find steps and open the range that nsys and ncu wait for.
    """
    names = [word.rpartition("/")[2] for word in words]
    is_python = any(_PYTHON.fullmatch(name) or name.endswith(_SCRIPTS) for name in names)
    return is_python or names[0] in _STARTERS


DEFAULT_COMMAND: Final = CommandLine(("python", "train.py"))
"""What stands for the user's command where nothing usable is known of it."""
_PROGRAM: Final = CommandLine(("./program",))
_RANK_STARTER: Final = re.compile(r"(?:^|[/\s])torchrun\s|\storch\.distributed\.(?:run|launch)\s")
_ON_ONE: Final = 8
"""Ranks that one machine may hold. Chosen: as many as servers have devices."""
_RANKS_PER_NODE: Final = re.compile(r"\s--nproc[-_]per[-_]node[=\s](\d{1,3})\s")


def stand_in(text: object, world_size: int | None, *, is_of_torch: bool = True) -> CommandLine:
    """What stands for the user's command: `python train.py`, with torchrun before it for a job of several ranks.

    Without a launcher a job of many ranks would start as another job; a text without torchrun was started by others.
    A program without PyTorch is `./program`, unless the text names Python. Nothing but a number is taken from the text;
    of more ranks than a machine has devices, torchrun counts these.
    """
    known = recorded(text)
    if not is_of_torch and (known is None or not known.may_run_python):
        return _PROGRAM
    is_launched = isinstance(text, str) and _RANK_STARTER.search(text) is not None
    if not is_launched and (isinstance(text, str) or (world_size or 1) == 1):
        return DEFAULT_COMMAND
    told = _RANKS_PER_NODE.search(text) if isinstance(text, str) else None
    n_ranks = told[1] if told else str(world_size or 1) if is_launched or (world_size or 1) <= _ON_ONE else "auto"
    return CommandLine(("torchrun", "--nproc-per-node", n_ranks, "train.py"))


def line_of(own: str, *words: str) -> CommandLine:
    """A command of profkit's own words, split at spaces, and of others', a word each, made printable."""
    return CommandLine(tuple(clean(word) for word in (*own.split(), *words)))


def recorded(text: object) -> CommandLine | None:
    """The command that a trace or a capture says it was recorded with; None for what is not one program's words.

    That is what does not split, holds operators outside quotes (`;`, `|`, `$(`: of which program would the words be?),
    characters that cannot be printed, no program in front, or more than `MAX_COMMAND_LENGTH` characters. Variables and
    patterns (`$HOME`, `*.bin`) become plain words.
    """
    return _recorded(text) if isinstance(text, str) else None


@lru_cache(maxsize=8)  # each analyzer names it in its next commands
def _recorded(text: str) -> CommandLine | None:
    return None if _fault(text) else CommandLine(tuple(shlex.split(text)))


def typed(text: str) -> CommandLine:
    """The command that the user names for next commands (`--command`); raises UsageError as `recorded` gives None.

    It is theirs to run, but it is shown behind `--` of another program, where a shell would cut it at an operator.
    """
    fault = _fault(text)
    if fault:
        raise UsageError(
            f"the command {clean(text[:100])!r} {fault}", hint="give one program and its arguments, or a script"
        )
    return CommandLine(tuple(shlex.split(text)))


def path_word(path: str) -> str:
    """A file's name as a word: never an option, and `?`, which profkit reads as a pattern, for the unprintable."""
    shown = "".join(char if char.isprintable() else "?" for char in path)
    return f"./{shown}" if shown.startswith("-") and shown != "-" else shown


def quoted_path(path: str) -> str:
    """A file's name quoted, to stand in a command in the middle of a sentence."""
    return shlex.quote(path_word(path))


def _fault(text: str) -> str:
    """Say why a text is not the words of one program, "" if it is."""
    if len(text) > MAX_COMMAND_LENGTH:
        return f"has more than {MAX_COMMAND_LENGTH:,} characters"
    if not text.isprintable():
        return "has characters that cannot be printed"
    try:
        words = shlex.split(text)
    except ValueError:
        return "ends inside a quote"
    if not words or not words[0]:
        return "names no program"
    if _NO_PROGRAM.match(words[0]):
        return f"begins with {words[0]!r}, which is not a program"
    if _OPERATOR.search(_QUOTED.sub("_", text)) or _substitutes(text):
        return "is more than one program and its arguments"
    return f"has more than {MAX_COMMAND_LENGTH:,} characters" if len(shlex.join(words)) > MAX_COMMAND_LENGTH else ""


def _substitutes(text: str) -> bool:
    """Whether a shell would run something inside double quotes."""
    return any(_SUBSTITUTION.match(match[0]) for match in _QUOTED.finditer(text))
