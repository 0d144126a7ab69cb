"""Many ranks: who is slow, who only waits.

The flow: `summary` makes of each rank's trace the few KB the parent needs; `match` finds the same collective on all
ranks; `clocks` brings the ranks' clocks together by it; `waits` splits each collective into waiting and transfer;
`straggler` says which rank keeps the others waiting, and `fingerprints` what it looks like. Values and functions over
arrays; no I/O.
"""
