"""What can be drawn of a trace: rows of intervals, curves, the intervals that prove each finding, the work by place.

In: `Analysed` (of one rank). Out: `Tracks`, which pages and other viewers draw. Begin with `draw.tracks_of`. `rows`
makes the rows, splits what overlaps into lanes and shortens them to what a page has room for; `proofs` and `work` say
what the rows are evidence of.
"""

from profkit.tracks.draw import tracks_of

__all__ = ["tracks_of"]
