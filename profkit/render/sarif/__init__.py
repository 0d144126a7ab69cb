"""Findings as SARIF 2.1.0, which code hosts and editors show beside the lines of code.

In: a report. Out: a log with one run: a rule for each kind of finding, a result for each finding. Begin with
`triage.render`.
"""

from __future__ import annotations

from typing import Final

SUFFIXES: Final = (".sarif",)
"""How files of this format are called."""
