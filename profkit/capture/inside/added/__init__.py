"""What a capture adds to the profiler's export: keys before its events, and rows of its own.

Standard library only, Python 3.9 syntax.
"""
