"""The garbage collector around what a command makes."""

import gc

import pytest

from profkit.allocator import collector_paused


@pytest.mark.parametrize(("is_last", "n_looks"), [(True, 0), (False, 1)])
def test_the_collector_does_not_look_at_what_the_last_command_made(is_last: bool, n_looks: int) -> None:
    looks: list[str] = []
    threshold, kept = gc.get_threshold(), []
    with collector_paused(is_last=is_last):
        gc.set_threshold(50_000)
        gc.callbacks.append(lambda phase, _: looks.append(phase))
        kept += [[] for _ in range(60_000)]
    kept.append([])
    gc.callbacks.pop()
    gc.set_threshold(*threshold)
    gc.unfreeze()
    assert looks.count("start") == n_looks
    assert gc.isenabled()
