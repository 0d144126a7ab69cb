"""Numpy for a command line: started once, for one command."""

from __future__ import annotations

import os
from importlib import import_module

_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy without the threads of OpenBLAS: their start costs CPU, and no command multiplies matrices.

    The environment is left as it was: commands that we start inherit it.
    """
    if _THREADS in os.environ:
        import_module("numpy")
        return
    os.environ[_THREADS] = "1"
    try:
        import_module("numpy")
    finally:
        del os.environ[_THREADS]
