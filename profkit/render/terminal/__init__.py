"""Documents for a terminal: text that keeps to a width, coloured where that is wanted.

In: a document. Out: lines, the answer first. Begin with `triage.render`; `page` and `layout` know no documents.
"""

from __future__ import annotations

from typing import Final

SUFFIXES: Final = (".txt",)
"""How files of this format are called."""
