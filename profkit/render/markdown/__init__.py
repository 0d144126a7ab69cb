"""Documents as markdown, for pull requests and issues.

In: a document. Out: markdown, the answer on top, what is long folded below. Begin with `triage.render`.
"""

from __future__ import annotations

from typing import Final

SUFFIXES: Final = (".md", ".markdown")
"""How files of this format are called."""
