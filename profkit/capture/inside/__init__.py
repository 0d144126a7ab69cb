"""What runs in the traced process: the recorder, its hooks, and what it writes.

In: `Options`, from one environment variable. Out: raw files in the capture's work folder, which `export` puts together.
Begin with `inject.start`. Standard library and torch only, Python 3.9 syntax, under another package's name.
"""
