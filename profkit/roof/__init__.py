"""How far work is from what its device can do at most: FLOPs and bytes of operators, peaks of devices (docs/roof.md).

In: an operator's name and `Signature`, a device's name. Out: `Work` (`formulas.work_of`), a `Peak` (`roofline.peak_of`)
and the least time that the one takes on the other (`roofline.roof_of`). Begin with `formulas/work.py`. What is not
known is None, never 0. `carried.with_shapes` gives timed operators the shapes that a second window recorded.
"""
