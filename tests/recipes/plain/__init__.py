"""Documents as one line each, for a status bar.

In: a document. Out: a line. Begin with `triage.render`.
"""

from __future__ import annotations

from typing import Final

SUFFIXES: Final = (".line",)
"""How files of this format are called."""
