"""Changes that are tried: what the verdict predicts of each, beside what interleaved runs measure.

In: a command and the report on it. Out: a `TrialReport`. `catalogue` has the changes, `choose` picks them for a report
and predicts, `session` runs them in turns, `report` compares. Inside a run: `profkit/capture/inside/trial`.
"""
