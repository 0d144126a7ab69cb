"""Delays of known size in the steps of an unmodified script: what shows in the step time is on its critical path.

In: `Options` with what to probe. Out: a record for each process, and rows of its loader's workers, in the run's folder.
Begin with `prober.Prober`. Standard library and torch only, Python 3.9 syntax, under another package's name.
"""
