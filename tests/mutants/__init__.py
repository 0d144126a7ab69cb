"""Which wrong rules would the tests let pass? Mutants of the rule code, each tried against the tests that reach it.

In: the rule modules (`mutations.RULES`) and the tests. Out: the score, the survivors and their diffs; `out/mutants`.
Begin at `__main__`; `mutations` makes mutants, `trial` tries one in a process of its own, `reach` knows which tests.
"""
