"""Documents as JSON: the contract that scripts, gates and agents read. Names and units only grow.

In: a document. Out: JSON that `profkit schema` describes. Begin with `triage.render`.
"""

from __future__ import annotations

from typing import Final

SUFFIXES: Final = (".json",)
"""How files of this format are called."""
