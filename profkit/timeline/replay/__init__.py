"""What a window would last without a cause: its launches replayed, with the host free from it (docs/method.md, 2).

A host that is held launches nothing. When it is let go, it is late for every launch after that until it has caught up:
what the hold costs is paid by later idle time, not only by the gap in which it ends. The replay runs a clock of the
host and one of each stream through the launches and the waiting calls of the window:

    launch on a stream    h += c                      e = max(e + x, h + y, f + z)
    call that waits       h = max(h + c + o, e + d, f + d)

`h` is where the host is, `e` when the stream is done with what it was given, `f` when another one is. `c` is host time
since the event before, `x` what the operation takes behind the one before it (with waits that no host shortens), `y`
the time from its launch to its end, `z` that from the end of what it waits for on another stream, `o` what the call
takes by itself, `d` how long after the device it returns. Measured values give the window as it was; without some host
time they give the window without it. Streams keep their order and their work. Where a value is not known the smallest
is taken: what comes out is a ceiling.

In: a trace, one device's activity and queue, the host's states. Out: `Gains`, and `WhatIf` for any other time of the
host. Begin with `gains.gains`; `clocks` runs the clocks, `streams` has `x`, `y` and `z`, `o` and `d`.
`tests/sim` draws jobs and compares with the truth.
"""

from profkit.timeline.replay.gains import Gains, WhatIf, gains, what_if

__all__ = ["Gains", "WhatIf", "gains", "what_if"]
