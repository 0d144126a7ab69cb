"""Regular expressions that are compiled when they are first used: most texts never get as far as a search."""

from __future__ import annotations

import re
from typing import Any, cast


def later(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """What `re.compile` gives, compiled when it is first asked to do something."""
    return cast("re.Pattern[str]", Later(pattern, flags))


class Later:
    """A pattern that becomes one when a method of it is asked for; what was asked for is kept."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        """A method of the pattern; no such name of ours was found."""
        if name == "compiled":
            asked: Any = re.compile(*self._given)
        else:
            asked = getattr(self.compiled, name)
        setattr(self, name, asked)
        return asked
