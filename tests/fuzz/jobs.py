"""Small jobs of several ranks on GPUs, each with something of its own: who is late, why, and in which groups."""

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.ranks.pipeline import schedule
from tests.ranks.scripted import MS, US, Clock, Group, Op, Writing, run, write

Trace = dict[str, Any]
_N_STEPS = 7
_TOKENS = ((900, 400, 500), (300, 1000, 450), (650, 600, 1100))
"""Of each rank, by turns of steps."""


def _steps(rank: int, work: Callable[[int], Iterator[Op]]) -> Iterator[Op]:
    for step in range(_N_STEPS):
        yield Op(what="step")
        yield Op(what="data", ns=300 * US + 7 * US * ((rank + step) % 3))
        yield from work(step)
        yield Op(what="join")
        yield Op(what="compute", ns=90 * US, name="multi_tensor_apply_kernel")
        yield Op(what="sync")


def _data_parallel(
    late_ns: Callable[[int, int], int], *, n_ranks: int = 3, alone: bool = False, tokens: bool = False
) -> dict[int, Iterator[Op]]:
    world = Group(name="0", ranks=tuple(range(n_ranks)))

    def of(rank: int) -> Iterator[Op]:
        def work(step: int) -> Iterator[Op]:
            yield Op(what="host", ns=late_ns(rank, step) or US, name="" if rank else "save_checkpoint" * alone)
            for name in ("ampere_sgemm_128x64_tn", "flash_fwd_kernel", "vectorized_elementwise_kernel"):
                yield Op(what="compute", ns=2 * US * _TOKENS[rank][step % 3] if tokens else MS, name=name)
                yield Op(what="collective", name="allreduce", group=world)
            if alone:
                yield Op(what="collective", name="barrier", group=world, elements=1)

        return _steps(rank, work)

    return {rank: of(rank) for rank in range(n_ranks)}


def _two_kinds_of_groups() -> dict[int, Iterator[Op]]:
    def of(rank: int) -> Iterator[Op]:
        tensor = Group(name=f"tp{rank // 2}", ranks=(rank // 2 * 2, rank // 2 * 2 + 1))
        data = Group(name=f"dp{rank % 2}", ranks=(rank % 2, rank % 2 + 2))

        def work(step: int) -> Iterator[Op]:
            yield Op(what="host", ns=(2 * MS if rank == 3 else US))
            for _ in range(3):
                yield Op(what="compute", ns=MS)
                yield Op(what="collective", name="_allgather_base", group=tensor)
            yield Op(what="collective", name="allreduce", group=data, stream=24)

        return _steps(rank, work)

    return {rank: of(rank) for rank in range(4)}


def _written(programs: Mapping[int, Iterator[Op]], *, transfer_ns: int = 400 * US, **how: Any) -> list[Trace]:
    with TemporaryDirectory() as folder:
        write(run(programs, transfer_ns=transfer_ns), Path(folder), Writing(**how))
        return [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(Path(folder).iterdir())]


def _counted(ranks: list[Trace]) -> list[Trace]:
    """The ranks with what `profkit.capture.step` was told of each step."""
    for rank, top in enumerate(ranks):
        steps = [event for event in top["traceEvents"] if event["name"].startswith("ProfilerStep")]
        for number, step in enumerate(steps):
            for name, count in (("tokens", _TOKENS[rank][number % 3]), ("padded_tokens", 1100), ("samples", 4)):
                at = {"pid": 4321, "tid": 0, "ts": step["ts"] + 1, "args": {name: count}}
                top["traceEvents"].append({"ph": "C", "cat": "profkit", "name": f"profkit.{name}", **at})
    return ranks


def _pipeline(n_stages: int = 3, n_batches: int = 4) -> list[Trace]:
    """Stages that hand on micro-batches: forward 1 ms, backward 2 ms, transfers of 50 us."""
    events: list[list[dict[str, Any]]] = [[] for _ in range(n_stages)]
    begin_us = 1000
    for step in range(4):
        begin_us = _one_schedule(events, begin_us, n_stages, n_batches, step)
    config = [
        {"pg_name": f"pp{stage}", "pg_size": 2, "ranks": [stage, stage + 1], "backend_config": "cuda:nccl"}
        for stage in range(n_stages - 1)
    ]
    told = {"backend": "nccl", "world_size": n_stages, "pg_count": len(config), "pg_config": config}
    return [
        {"schemaVersion": 1, "baseTimeNanoseconds": 0, "distributedInfo": told | {"rank": rank}, "traceEvents": rows}
        for rank, rows in enumerate(events)
    ]


def _one_schedule(events: list[list[dict[str, Any]]], begin_us: int, n_stages: int, n_batches: int, step: int) -> int:
    done: dict[tuple[str, int, int], int] = {}
    now = [begin_us + 10] * n_stages
    todo = [schedule("gpipe", rank, n_stages, n_batches, 1) for rank in range(n_stages)]
    while any(todo):
        for rank in range(n_stages):
            while todo[rank]:
                what, _, batch = todo[rank][0]
                source = rank - 1 if what == "F" else rank + 1
                if 0 <= source < n_stages:
                    if (what, source, batch) not in done:
                        break
                    arrived = max(done[what, source, batch], now[rank]) + 50
                    events[rank].append(_hop("recv", rank, source, now[rank], arrived - now[rank]))
                    now[rank] = arrived
                todo[rank].pop(0)
                length = 1000 if what == "F" else 2000
                events[rank].append(_kernel("ampere_sgemm_128x64_tn", now[rank], length, stream=7))
                now[rank] += length
                done[what, rank, batch] = now[rank]
                to = rank + 1 if what == "F" else rank - 1
                if 0 <= to < n_stages:
                    events[rank].append(_hop("send", rank, to, now[rank], 50))
    for rows in events:
        base = {"ph": "X", "cat": "user_annotation", "pid": 4321, "tid": 4321, "args": {}}
        rows.append({**base, "name": f"ProfilerStep#{step}", "ts": begin_us, "dur": max(now) + 60 - begin_us})
    return max(now) + 60


def _hop(what: str, rank: int, peer: int, ts: int, dur: int) -> dict[str, Any]:
    low = min(rank, peer)
    args = {"Collective name": what, "In msg nelems": 4096, "Out msg nelems": 4096, "Group size": 2, "dtype": "Float"}
    args |= {"Process Group Name": f"pp{low}", "Process Group Ranks": str([low, low + 1])}
    args |= {"Dst Rank" if what == "send" else "Src Rank": peer}
    return _kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", ts, dur, stream=20, **args)


def _kernel(name: str, ts: int, dur: int, *, stream: int, **args: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur}
    return row | {"args": {"device": 0, "stream": stream, "correlation": 0, **args}}


_CLOCKS = {1: Clock(offset_ns=3 * MS, drift=2e-5), 2: Clock(offset_ns=-7 * MS, drift=-1e-5)}

JOBS: dict[str, Callable[[], list[Trace]]] = {
    "late": lambda: _written(_data_parallel(lambda rank, step: 3 * MS * (rank == 1)), clocks=_CLOCKS),
    "two late": lambda: _written(_data_parallel(lambda rank, step: 3 * MS * (rank != 2))),
    "skew": lambda: _written(_data_parallel(lambda rank, step: 3 * MS * (rank == step % 3)), has_seq=False),
    "alone": lambda: _written(_data_parallel(lambda rank, step: 3 * MS * (rank == 0), alone=True)),
    "bandwidth": lambda: _written(_data_parallel(lambda rank, step: 0), transfer_ns=4 * MS),
    "tokens": lambda: _counted(_written(_data_parallel(lambda rank, step: 0, tokens=True))),
    "apart": lambda: _written(_data_parallel(lambda rank, step: 0), windows={1: (2, 8)}, dropped={2: 2}),
    "groups": lambda: _written(_two_kinds_of_groups()),
    "no arguments": lambda: _written(_data_parallel(lambda rank, step: 2 * MS * (rank == 2)), has_args=False),
    "no rank": lambda: _written(_data_parallel(lambda rank, step: 0), has_rank=False),
    "pipeline": _pipeline,
}
"""Jobs by name; each is made anew."""
