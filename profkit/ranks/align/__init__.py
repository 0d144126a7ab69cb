"""Which collective of one rank is which of another, and what each rank's clock shows.

In: `RankSummary`s. Out: a `Matching` and `Clocks`. Begin with `match.matched` and `clocks.aligned`.
"""
