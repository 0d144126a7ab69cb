"""Findings as commands of a GitHub workflow, which shows them beside the lines of a pull request.

In: a report. Out: a line for the verdict and one for each finding. Begin with `triage.render`.
"""

from __future__ import annotations

from typing import Final

SUFFIXES: Final[tuple[str, ...]] = ()
"""Files of this format have no name: a workflow reads what a step prints."""
