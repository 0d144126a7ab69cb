"""Two sides to one answer: did the change help, by how much, how sure is that, and why.

In: captures, or tables of runs. Out: a `Comparison`, `ScalingReport`, `LadderReport` or `BenchReport`. Begin with
`paths.compare_paths`; `comparison.compare` is for captures that are read, `paths.compare_tables` for tables.

`profkit.compare(before, after)` calls this package: it has the name of the function that users know.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.compare.paths import Paths
    from profkit.model.documents.comparison import Comparison


class _Called(ModuleType):
    """The package as a function, `paths.compare_paths`."""

    def __call__(self, baseline: Paths, candidate: Paths | None = None, **options: Any) -> Comparison:
        from profkit.compare.paths import compare_paths

        return compare_paths(baseline, candidate, **options)


sys.modules[__name__].__class__ = _Called
