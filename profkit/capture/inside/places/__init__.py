"""A second, short recording after the timed steps: with Python stacks and shapes, so that times have places in code.

In: the boundaries of the steps that follow. Out: a second raw export, and facts for the file beside the timed trace:
the qualified names of modules, the script's own files, the lines from which calls were made. Begin with
`window.SecondWindow`; `fold` bounds the file when it is put together. Nothing that goes wrong here touches the timed
trace, which is written before. Standard library and torch only (`fold`: no torch), Python 3.9 syntax.
"""
