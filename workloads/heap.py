"""A warm heap, so that a CPU run times its operators and not the kernel's page faults."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_TRIM_THRESHOLD: Final = -1  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>
_MMAP_THRESHOLD: Final = -3


def warm_heap(n_bytes: int) -> bool:
    """Touches `n_bytes` of heap once and makes glibc keep them; False where malloc is not glibc's.

    While torch.profiler records, its small buffers land in the holes that freed tensors leave. The next
    tensor no longer fits its old hole, so the heap grows, by 12 to 20 MB in each step of the kernel regime,
    and every new page faults: 36 ms steps became 35 to 154 ms (torch 2.13, glibc 2.36, a 2-core VM). In a
    heap touched beforehand they stay 36 ms. It lasts as long as the process.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "gnu_get_libc_version"):
        return False
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    is_kept = all(libc.mallopt(name, 2**30) for name in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))
    block = libc.malloc(n_bytes)
    if not is_kept or not block:
        return False
    ctypes.memset(block, 0, n_bytes)
    libc.free(block)
    return True
