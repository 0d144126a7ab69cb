"""Where in the user's code: each operator, call and moment of the host joined with a line, a function and a module.

In: a trace recorded with Python stacks, or one with such a window beside it. Out: `Code`, and from it `PlaceShare`s,
the first of which is the line to look at. Begin with `join.code_of`, or `carry.carried` where the frames are another
window's; `frames` nests the frames and tells whose they are, `modules` names the modules, `phases` tells forward,
backward and optimizer apart, `match` finds operators again, `sums` adds times up by place.
"""

from profkit.timeline.code.carry import carried, matched
from profkit.timeline.code.code import Code
from profkit.timeline.code.join import code_of
from profkit.timeline.code.match import Match, match_ops
from profkit.timeline.code.modules import Module
from profkit.timeline.code.sums import Rows, rows_of_places, shares

__all__ = ["Code", "Match", "Module", "Rows", "carried", "code_of", "match_ops", "matched", "rows_of_places", "shares"]
