"""Whole jobs by script, as files: each rank runs its operations, collectives join ranks, clocks may be apart."""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import profkit
from profkit.model.documents.report import Report
from profkit.model.finding import Finding

US, MS = 1_000, 1_000_000
_ORIGIN_NS = 1_790_857_026_000_000_000
_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
_KERNELS = {
    "allreduce": "AllReduce_Sum_f32_RING_LL", "_allgather_base": "AllGather_RING_LL", "barrier": "AllReduce",
    "send": "SendRecv", "recv": "SendRecv", "all_to_allv": "SendRecv",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Group:
    name: str
    ranks: tuple[int, ...]
    transfer_ns: int = 0
    """What its collectives take once the last rank has come; 0: as `run` says."""


@dataclass(frozen=True, kw_only=True)
class Op:
    """One operation; "join": compute waits for communication ("join_stream": for that stream alone), "sync": the host
    for the device; "call": the host is in a call of the runtime."""

    what: str
    ns: int = 0
    name: str = ""
    group: Group | None = None
    elements: int = 1_000_000
    stream: int = 20
    grid: int = 64
    peer: int = -1
    """Of a "send" or "recv", the rank at the other end, in a group that may have more ranks."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    offset_ns: int = 0
    drift: float = 0.0

    def shown(self, ns: int) -> int:
        return round(ns * (1 + self.drift)) + self.offset_ns


@dataclass
class Rank:
    """What a rank has done so far. Times in true ns."""

    host: int = 10 * MS
    device: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    events: list[tuple[str, str, int, int, Mapping[str, Any]]] = field(default_factory=list)
    seq: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    begun: int | None = None
    n_steps: int = 0
    correlation: int = 0
    launch_ns: int = 8 * US
    """What the host takes for a launch with its operator."""
    others_slice: tuple[int, int] = (0, 0)
    """Period, and how much of each another process has the device: work that would begin then begins after it."""

    def begins(self, ns: int) -> int:
        """When the device begins what it could begin at this time."""
        period, others = self.others_slice
        return ns + max(others - ns % period, 0) if period else ns

    def put(self, cat: str, name: str, begin: int, end: int, **args: Any) -> None:
        self.events.append((cat, name, begin, end, args))

    def launched(self, operator: str) -> int:
        self.correlation += 1
        begin = self.host
        self.host += self.launch_ns
        self.put("cpu_op", operator, begin, self.host - US, **{"External id": self.correlation})
        self.put("cuda_runtime", "cudaLaunchKernel", begin + 2 * US, begin + 6 * US, correlation=self.correlation)
        return begin + 7 * US

    def end_step(self) -> None:
        if self.begun is not None:
            self.put("user_annotation", f"ProfilerStep#{self.n_steps - 1}", self.begun, self.host)


def run(
    programs: Mapping[int, Iterable[Op]],
    *,
    transfer_ns: int = 400 * US,
    seed: int = 0,
    machines: Mapping[int, Mapping[str, Any]] | None = None,
) -> dict[int, Rank]:
    """Run all ranks' operations; a collective ends at the same moment (within 3 us) on all members of its group.

    `machines`: by rank, fields of `Rank` that its host or device has otherwise than the others'.
    """
    generator = np.random.default_rng(seed)
    ranks = {number: Rank(**(machines or {}).get(number, {})) for number in programs}
    left = {number: iter(program) for number, program in programs.items()}
    come: dict[tuple[str, int], dict[int, tuple[int, int, Op]]] = defaultdict(dict)
    stopped: dict[int, tuple[str, int]] = {}
    while left:
        for number in [number for number in left if number not in stopped]:
            for op in left[number]:
                if op.what != "collective":
                    _one(ranks[number], op)
                    continue
                ends = (number, op.peer) if op.name == "send" else (op.peer, number)
                name = op.group.name if op.peer < 0 else f"{op.group.name} {ends[0]} to {ends[1]}"
                key = name, ranks[number].seq[name]
                ranks[number].seq[name] += 1
                ready = ranks[number].launched(f"c10d::{op.name}_")
                device = ranks[number].device
                start = ranks[number].begins(max(ready, device[7], device[op.stream]) + 2 * US)
                come[key][number] = start, ranks[number].correlation, op
                if op.name == "send":
                    continue  # its host goes on: it ends when the other end has received
                stopped[number] = key
                break
            else:
                ranks[number].end_step()
                del left[number]
        whole = [key for key, members in come.items() if len(members) == _n_members(next(iter(members.values()))[2])]
        if not whole and left and all(number in stopped for number in left):
            raise RuntimeError("the programs wait for each other")
        for key in whole:
            members = come.pop(key)
            last = max(start for start, _, _ in members.values())
            usual_ns = next(iter(members.values()))[2].group.transfer_ns or transfer_ns
            left_ns = last + round(usual_ns * (1 + 0.02 * generator.standard_normal()))
            for number, (start, correlation, op) in members.items():
                end = left_ns + int(generator.exponential(2 * US))
                ranks[number].device[op.stream] = max(end, ranks[number].device[op.stream])
                ranks[number].put(
                    "nccl", op.name, start, end, op=op, seq=key[1], correlation=correlation, stream=op.stream
                )
                if op.name != "send":
                    del stopped[number]
    return ranks


def _n_members(op: Op) -> int:
    return len(op.group.ranks) if op.peer < 0 else 2


def _one(rank: Rank, op: Op) -> None:
    if op.what == "step":
        rank.end_step()
        rank.begun, rank.n_steps = rank.host, rank.n_steps + 1
    elif op.what in ("data", "host"):
        begin = rank.host
        rank.host += op.ns
        if op.what == "data" or op.name:
            rank.put("user_annotation" if op.what == "data" or op.name[0] != "a" else "cpu_op",
                     op.name or _LOADER, begin, rank.host)  # fmt: skip
    elif op.what == "compute":
        ready = rank.launched("aten::mm")
        begin = rank.begins(max(ready, rank.device[7]) + US)
        rank.device[7] = begin + op.ns
        rank.put("kernel", op.name or "ampere_sgemm_128x64_tn", begin, begin + op.ns, stream=7, grid=op.grid,
                 correlation=rank.correlation)  # fmt: skip
    elif op.what == "copy":
        begin = max(rank.launched("aten::copy_"), rank.device[7]) + US
        rank.device[7] = rank.host = end = begin + op.ns
        of_call = {"stream": 7, "correlation": rank.correlation}
        rank.put("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", begin, end, **of_call)
    elif op.what == "join":
        rank.device[7] = max(rank.device.values(), default=0)
    elif op.what == "join_stream":
        rank.device[7] = max(rank.device[7], rank.device[op.stream])
    elif op.what == "call":
        rank.put("cuda_runtime", op.name, rank.host, rank.host + op.ns, correlation=0)
        rank.host += op.ns
    elif op.what == "sync":
        end = max(rank.host + 3 * US, *rank.device.values(), 0) + 2 * US
        rank.put("cuda_runtime", "cudaDeviceSynchronize", rank.host, end, correlation=0)
        rank.host = end


def in_steps(n_steps: int) -> Callable[[Callable[..., Iterable[Op]]], Callable[..., Iterator[Op]]]:
    """A program that runs what is decorated in each of so many steps, and waits for the device at their ends."""

    def decorated(body: Callable[..., Iterable[Op]]) -> Callable[..., Iterator[Op]]:
        def program(*args: Any, **kwargs: Any) -> Iterator[Op]:
            for _ in range(n_steps):
                yield from [Op(what="step"), *body(*args, **kwargs), Op(what="join"), Op(what="sync")]

        return program

    return decorated


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How traces are written. `window`: per rank the steps kept, `dropped`: per rank collectives not in the trace."""

    has_args: bool = True
    has_seq: bool = True
    has_rank: bool = True
    kernel: str = ""
    clocks: Mapping[int, Clock] = field(default_factory=dict)
    windows: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    dropped: Mapping[int, int] = field(default_factory=dict)
    """Per rank so many collectives that the window misses at its beginning."""
    device_early_ns: int = 0
    """By how much the device's clock is behind the host's: its rows stand that much too early."""
    host_of: Callable[[int], str] = lambda rank: "node0"
    world_size: int | None = None


def write(ranks: Mapping[int, Rank], folder: Path, how: Writing | None = None) -> Path:
    """Write a trace per rank; give the folder."""
    how = how or Writing()
    folder.mkdir(parents=True, exist_ok=True)
    for number, rank in ranks.items():
        head: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Simulated GPU"}],
            "baseTimeNanoseconds": _ORIGIN_NS,
        }
        if how.has_rank:
            size = how.world_size or len(ranks)
            head["distributedInfo"] = {"backend": "nccl", "rank": number, "world_size": size}
            head["host_name"] = how.host_of(number)
        name = f"rank{number}" if how.has_rank else f"trace_{chr(97 + number)}"
        document = {**head, "traceEvents": list(_written(rank, number, how))}
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(document).encode(), compresslevel=1))
    return folder


def _written(rank: Rank, number: int, how: Writing) -> Iterable[dict[str, Any]]:
    clock = how.clocks.get(number, Clock())
    low, high = _kept(rank, number, how)
    for cat, called, begin, end, args in rank.events:
        name = called
        if begin < low or begin >= high:
            continue
        begin_us, end_us = clock.shown(begin) / 1e3, clock.shown(end) / 1e3
        given = dict(args)
        on_device = cat in ("kernel", "nccl", "gpu_memcpy")
        if on_device:
            begin_us, end_us = begin_us - how.device_early_ns / 1e3, end_us - how.device_early_ns / 1e3
        if on_device:
            given = {"device": 0, "context": 1, "stream": args["stream"], "correlation": args["correlation"]}
            given |= {"grid": [args.get("grid", 24), 1, 1], "block": [256, 1, 1]}
        if cat == "nccl":
            op = args["op"]
            if how.has_args:
                given |= {
                    "Collective name": op.name, "In msg nelems": op.elements, "Out msg nelems": op.elements,
                    "Group size": len(op.group.ranks), "dtype": "Float", "Process Group Name": op.group.name,
                    "Process Group Description": op.group.name, "Process Group Ranks": str(list(op.group.ranks)),
                }  # fmt: skip
            if how.has_args and op.peer >= 0:
                given |= {"Dst Rank" if op.name == "send" else "Src Rank": op.peer}
            if how.has_args and how.has_seq and op.peer < 0:
                given["Seq"] = args["seq"] + 17
            name = how.kernel or f"ncclDevKernel_{_KERNELS[op.name]}(ncclDevKernelArgsStorage<4096ul>)"
        yield {
            "ph": "X", "cat": "kernel" if cat == "nccl" else cat, "name": name, "pid": 0 if on_device else 4321,
            "tid": args["stream"] if on_device else 4321, "ts": begin_us, "dur": end_us - begin_us, "args": given,
        }  # fmt: skip


def _kept(rank: Rank, number: int, how: Writing) -> tuple[int, int]:
    steps = [(begin, end) for cat, name, begin, end, _ in rank.events if name.startswith("ProfilerStep")]
    if not steps:
        return 0, max(end for *_, end, _ in rank.events)
    first, behind = how.windows.get(number, (0, len(steps)))
    low = steps[first][0]
    high = steps[behind][0] if behind < len(steps) else 10**18  # what was launched in the last step runs after it
    starts = sorted(begin for cat, _, begin, _, _ in rank.events if cat == "nccl" and begin >= low)
    n = how.dropped.get(number, 0)
    return (starts[n] - US if n else low), high


def triaged(ranks: Mapping[int, Rank], folder: Path, how: Writing | None = None) -> Report:
    return profkit.triage([str(write(ranks, folder, how))])


def of(report: Report, name: str = "straggler.rank") -> list[Finding]:
    return [finding for finding in report.findings if finding.id == name]


def found(report: Report, name: str = "straggler.rank") -> Finding | None:
    """The first finding of that id."""
    return next(iter(of(report, name)), None)


def said(finding: Finding) -> str:
    return "\n".join(evidence.statement for evidence in finding.evidence)


def cause(report: Report, rank: int) -> str:
    return next(row.cause for row in report.fleet.rows if rank in row.ranks)
