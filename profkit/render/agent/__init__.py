"""Documents for a program that reads text: short, each number with its id, a path into the JSON of the same document.

In: a document. Out: at most 8,000 characters, about 2,000 tokens. Begin with `triage.render`; `page` keeps to the
length.
"""

from __future__ import annotations

from typing import Final

SUFFIXES: Final[tuple[str, ...]] = ()
"""Files of this format have no name of their own: it is read from standard output."""
