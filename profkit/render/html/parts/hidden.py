"""What a page does not tell unless asked: folders, home directories, names of hosts.

A page is mailed to people who were never meant to see the disk it was made on. Every text that a template prints goes
through `Hider.shown`, so that nothing has to be remembered in a template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final

from profkit.shell import clean

LEFT_OUT: Final = "…"
"""What stands for a folder."""
_URL: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,15}://)(?:[^\s'\"<>/?#]*/)*([^\s'\"<>/?#]*)(?:[?#][^\s'\"<>]*)?")
_HOME: Final = re.compile(r"(?<![\w.…~-])/(?:home|Users|root/home)/[^/\\\s'\"<>|,;()]+")
_OWNER: Final = re.compile(r"^(?:file://)?/(?:home|Users)/([^/]+)/")
_QUOTED: Final = re.compile(r"(['\"])(?:~|[A-Za-z]:)?[/\\][^'\"]*[/\\]([^'\"/\\]*)\1")
_PATH: Final = re.compile(
    r"(?<![\w.…/\\~-])(?:~[\w-]*|[A-Za-z]:)?(?:[/\\][^\s/\\'\"<>|,;()]+)+[/\\]([^\s/\\'\"<>|,;()]*)"
    r"|(?<![\w.…/\\])~[\w-]*/([^\s/\\'\"<>|,;()]*)"
)
_WORKER: Final = re.compile(r"[\w.-]{1,120}_(\d+)\.(\d{10,})(?=\.pt\.trace\.json)")
"""How torch.profiler's own handler calls a file: host, process, time."""
_OWN_NAMES: Final = ".pt.trace.json"


class Hider:
    """Makes texts fit to be shown: printable, on one line, and without folders and hosts unless `with_paths`.

    `hosts`: those that its sentences name; they become host-0, host-1 and so on, on the whole page.
    `paths`: those that the document was read from, and of code. By them alone are known a folder with a space in its
    name, and a home directory where a place names its last part (`ann/train.py`).
    """

    def __init__(self, paths: Iterable[str], *, with_paths: bool, hosts: Sequence[str] = ()) -> None:
        self._is_open = with_paths
        self._hosts = {clean(host): f"host-{place}" for place, host in enumerate(hosts)}
        longest_first = sorted(map(re.escape, self._hosts), key=len, reverse=True)
        self._host = re.compile(rf"(?<![\w.-])(?:{'|'.join(longest_first)})(?![\w-]|\.\w)") if hosts else None
        known = [clean(path) for path in paths]
        parents = {str(PurePath(path).parent) for path in known}
        owners = {re.escape(found[1]) for path in known if (found := _OWNER.match(path))}
        self._owner = re.compile(rf"(?<![\w./~-])(?:{'|'.join(sorted(owners))})/") if owners else None
        self._folders = sorted((folder for folder in parents if _is_absolute(folder)), key=len, reverse=True)

    def shown(self, text: str) -> str:
        """The text as the page has it."""
        line = clean(text)
        if self._is_open:
            return line
        if self._host is not None:
            line = self._host.sub(lambda found: self._hosts[found[0]], line)
        for folder in self._folders:
            line = line.replace(f"{folder}/", f"{LEFT_OUT}/").replace(folder, LEFT_OUT)
        if "/" in line or "\\" in line:
            line = _URL.sub(rf"\1{LEFT_OUT}/\2", line) if "://" in line else line
            line = _QUOTED.sub(rf"\1{LEFT_OUT}/\2\1", line)
            line = _HOME.sub("~", line)
            line = self._owner.sub("~/", line) if self._owner is not None else line
            line = _PATH.sub(lambda found: f"{LEFT_OUT}/{found[1] or found[2] or ''}", line)
        return _WORKER.sub(r"host_\1.\2", line) if _OWN_NAMES in line else line


def _is_absolute(folder: str) -> bool:
    return len(folder) > 1 and (folder.startswith(("/", "~", "\\")) or folder[1:2] == ":" or "://" in folder)
