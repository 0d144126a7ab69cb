"""Where in the script's code the operators of a trace come from.

In: a trace recorded with Python stacks, beside the timed one or the same. Out: places for operators.
"""
