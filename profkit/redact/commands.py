"""Commands, as lists of words and as recorded lines: the program tells what an option of it holds.

The words of a line are those that a shell takes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from . import texts
from .later import later
from .names import NO, OF_CONTENT, STRONG, listed, strength_of, words_of
from .suspects import LONGEST, is_suspect
from .values import HEX40, REDACTED, is_secret

_ASSIGNMENT: Final = later(r"([-+~]*)([A-Za-z_][\w.\-/@\[\]]*)=(.*)", re.DOTALL)
_PROGRAM: Final = later(r"(?:[^\s]*/)?([a-z][\w\-]*)")
_WITH_GLUED: Final = listed("mysql mysqldump mysqladmin mariadb sshpass")
_WITH_SHORT: Final = {
    "sshpass": ("-p",), "docker": ("-p",), "podman": ("-p",), "az": ("-p",), "helm": ("-p",), "redis-cli": ("-a",),
    "ldapsearch": ("-w",), "curl": ("-b", "--cookie"),
}  # fmt: skip
_WITH_USER: Final = {
    "curl": ("-u", "--user", "-U", "--proxy-user"), "wget": ("--user",), "http": ("-a", "--auth"), "https": ("-a",),
    "smbclient": ("-U",),
}  # fmt: skip
_SHELLS: Final = listed("sh bash dash zsh ksh")
_CODE_FLAG: Final = later(r"-[a-z]*c")
_LOGINS: Final = listed("wandb neptune comet")
_PIECES_OF_SHELL: Final = later(
    r"""(\s+)|([;&|<>()]+)|("(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\;&|<>()]+|.)""", re.DOTALL
)
_VARIABLE: Final = later(r"[A-Za-z_]\w*=")
_QUOTED: Final = later(r"""(?s)"((?:[^"\\]|\\.)*)"|'([^']*)'|\\(.)""")
_ESCAPED: Final = later(r"""(?s)\\([$`"\\\n])""")


def redacted_command(words: Sequence[str]) -> list[str]:
    """The words of a command with the secrets in them replaced: `--api-key X`, `HF_TOKEN=X`, `curl -u me:X`."""
    out: list[str] = []
    programs: set[str] = set()
    before = ""
    for word in words:
        is_flag = word.startswith("-")
        awaited = _awaited(before, programs)
        if not programs.isdisjoint(_SHELLS) and _CODE_FLAG.fullmatch(before) is not None:
            out.append(redacted_line(word))
        elif awaited and not is_flag:
            out.append(REDACTED if is_secret(word, awaited) else word)
        elif _is_option(before, programs, _WITH_USER):
            out.append(_without_password(word))
        elif before == "login" and not programs.isdisjoint(_LOGINS) and not is_flag and len(word) >= 16:
            out.append(REDACTED)
        elif HEX40.fullmatch(word) is not None:
            out.append(word if _is_commit(out, programs) else REDACTED)
        else:
            out.append(_word_cleaned(word, programs))
        named = _PROGRAM.fullmatch(word)
        if named is not None and not awaited:
            programs.add(named[1])
        before = word
    return out


def _awaited(before: str, programs: set[str]) -> int:
    """What the word before says of this one: NO, WEAK or STRONG."""
    if _is_option(before, programs, _WITH_SHORT):
        return STRONG
    return strength_of(before) if before.startswith("-") and "=" not in before else NO


def _is_option(word: str, programs: set[str], options: Mapping[str, Sequence[str]]) -> bool:
    return any(word in options.get(program, ()) for program in programs)


def _without_password(word: str) -> str:
    user, mark, _ = word.partition(":" if ":" in word else "%")
    return f"{user}{mark}{REDACTED}" if mark else word


def _is_commit(before: Sequence[str], programs: set[str]) -> bool:
    return "git" in programs or not OF_CONTENT.isdisjoint(words_of(before[-1] if before else ""))


def _word_cleaned(word: str, programs: set[str]) -> str:
    if word.startswith("-p") and len(word) > 2 and not programs.isdisjoint(_WITH_GLUED):
        return f"-p{REDACTED}"
    pair = _ASSIGNMENT.fullmatch(word)
    if pair is None:
        return texts.redacted_text(word)
    dashes, name, value = pair.groups()
    clean = REDACTED if is_secret(value, strength_of(name)) else texts.redacted_text(value)
    return f"{dashes}{name}={clean}"


def redacted_line(text: str) -> str:
    """A recorded command with the secrets in it replaced, every other character as it was."""
    if len(text) > LONGEST:
        return REDACTED if is_suspect(text) else text
    spans = list(spans_of_words(text))
    before = [unquoted(text[start:end]) for start, end in spans]
    after = redacted_command(before)
    parts: list[str] = []
    place = 0
    for (start, end), old, new in zip(spans, before, after):  # noqa: B905 - Python 3.9
        if new != old:
            parts += [text[place:start], quoted(new)]
            place = end
    return texts.cleaned("".join(parts) + text[place:])


def spans_of_words(text: str) -> Iterator[tuple[int, int]]:
    """Where the words of a command begin and end, quotes with them."""
    start = -1
    for found in _PIECES_OF_SHELL.finditer(text):
        is_part = found[3] is not None
        if is_part and start < 0:
            start = found.start()
        elif not is_part and start >= 0:
            yield start, found.start()
            start = -1
    if start >= 0:
        yield start, len(text)


def quoted(word: str) -> str:
    """Quote a word as a shell takes it; an assignment before a command is none if its name is quoted."""
    variable = _VARIABLE.match(word)
    return shlex.quote(word) if variable is None else variable[0] + shlex.quote(word[variable.end() :])


def unquoted(word: str) -> str:
    """A word without its quotes."""
    return _QUOTED.sub(_inside, word) if _QUOTED.search(word) is not None else word


def _inside(found: re.Match[str]) -> str:
    doubly, singly, escaped = found.groups()
    return _ESCAPED.sub(r"\1", doubly) if doubly is not None else singly if singly is not None else escaped
