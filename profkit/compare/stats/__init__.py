"""Statistics of a few runs: intervals, tests, and the judgement that stands on them.

In: samples. Out: a `Judgement` with the error rate that is promised. Begin with `judge.judge`.
"""
