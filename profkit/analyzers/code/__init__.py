"""Which module and which line of the user's code the time goes to (docs/where.md).

`tree` sums the work and the idle time by module, `stacks` the host's time by stack of calls, `about` finds the rows of
one kernel or module by its name. Begin with `tree.measure`.
"""

from profkit.analyzers.code.tree import ANALYZER, ModuleTree, busiest, measure, question_of

__all__ = ["ANALYZER", "ModuleTree", "busiest", "measure", "question_of"]
