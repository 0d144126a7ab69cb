"""What inputs begin as: small traces, drawn and real, exports, tables and ncu's pages; each is made once a process."""

import copy
import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from profkit.testing import drawn_rows, to_json
from tests.fuzz import jobs
from tests.fuzz.values import OWN
from tests.handover.jobs import ADD, GEMM, Job, Launch

ROOT = Path(__file__).resolve().parents[2]
Event = dict[str, Any]
Trace = dict[str, Any]
_REAL = {
    "kernel_cpu": "kernel_cpu.pt.trace.json.gz",
    "data_cpu": "data_cpu.pt.trace.json.gz",
    "workers_cpu": "data_workers2_cpu.pt.trace.json.gz",
    "overhead_cpu": "overhead_cpu.pt.trace.json.gz",
    "fsdp_cpu": "fsdp_vlm_prefetch_on/rank0.pt.trace.json.gz",
    "tokens_cpu": "token_skew_packing_ws4/rank0.pt.trace.json.gz",
}
_PICTURES = {
    "launches": """
        steps   | 0...................1...................2...................
        gpu s7  | ..KK.kk..K..CC......KK..kk.K.CC.........KK..kk.K..CC.......
        main    | LO.LO..L...H..S.....LO.LO.L.H....S......LO.LO..L..H...S....
        loader  | ................WWW................WWW................WWW...
    """,
    "comm": """
        steps   | 0...................1...................2...................
        gpu s7  | ..KKKKKK..KKKK......KKKKKKkkk.KKK.......KKKKKK..KKKKKK.....
        gpu s20 | ....NNNNNNNN....nnn.....NNNNNN....NN.......NNNNNN.....NN...
        gpu1 s7 | .KKKK....DD.M.......KKKK...DD..M........KKKK..DD...M.......
        main    | LOLOLOLLOOLOA..S.UU.LOLOLOLOLLOOLA.S.UUULOLOLOLOLLOOLA.S.U.
        python  | PPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPP
    """,
    "one step": """
        steps   | 0.............................
        gpu s7  | ..KKKKKKkk..XX......DD..KKK...
        main    | L.GO..LO...SSSSSS..H.OOL......
        engine  | ..OOOoo...R...............UU..
    """,
    "no steps": """
        gpu s7  | KKK...kkk..C..KKK....KK.
        main    | LO.L..L...H...L...S..L..
    """,
}


def packed(top: Trace) -> bytes:
    """A base as it is kept: copies come from decoding, faster than from copying."""
    return msgspec.json.encode(top)


def drawn_trace(rng: random.Random) -> Trace:
    """A copy of one of the traces, of any kind."""
    return trace_named(rng.choice(sorted([*_PICTURES, *_MADE, *_REAL])))


def trace_named(name: str) -> Trace:
    """A copy of a trace."""
    return msgspec.json.decode(_kept(name))


@cache
def _kept(name: str) -> bytes:
    if name in _PICTURES:
        return packed(json.loads(to_json(drawn_rows(_PICTURES[name]), metadata=HEAD, rank=0)))
    if name in _MADE:
        return packed(_MADE[name]())
    return packed(sliced(ROOT / "traces" / _REAL[name]))


HEAD: Trace = {
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_017_493_504, "computeMajor": 9, "computeMinor": 0,
         "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
         "sharedMemPerBlock": 49152, "numSms": 132, "maxSharedMemoryPerMultiProcessor": 233472},
        {"id": 1, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_017_493_504, "numSms": 132},
    ],
    "cuda_runtime_version": 12040, "with_stack": 1, "record_shapes": 1, "profile_memory": 1, "torch_version": "2.6.0",
    "profkit_command": "torchrun --nproc-per-node 2 train.py --lr 1e-3", "profkit_command_mark": OWN, "profkit_unprofiled_step_mean_ns": 15000,
    "profkit_unprofiled_steps": 10, "profkit_rank": 0, "profkit_world_size": 2, "baseTimeNanoseconds": 1_790_857_026_000_000_000,
}  # fmt: skip


def sliced(path: Path, *, n_steps: int = 3, n_ops: int = 80) -> Trace:
    """A few steps of a real trace: all its ranges and counts, and an even sample of operators."""
    top: Trace = json.loads(gzip.decompress(path.read_bytes()))
    events = top["traceEvents"]
    steps = sorted((e["ts"], e["dur"]) for e in events if str(e.get("name", "")).startswith("ProfilerStep#"))[:n_steps]
    low, high = steps[0][0], steps[-1][0] + steps[-1][1]
    inside = [event for event in events if event.get("ph") == "M" or low <= event.get("ts", 0) < high]
    many = [event for event in inside if event.get("cat") in ("cpu_op", "fwdbwd")]
    few = [event for event in inside if event.get("cat") not in ("cpu_op", "fwdbwd")]
    top["traceEvents"] = [*few[:110], *many[:: max(len(many) // n_ops, 1)]]
    return top


def _gpu_job() -> Trace:
    blocks = (Launch(GEMM, 120, (128, 4, 1), (256, 1, 1)), Launch(ADD, 10), Launch("ampere_sgemm_128x64_tn", 60))
    return json.loads(to_json(Job(launches=blocks * 3, n_steps=4).rows(), metadata=HEAD, rank=0))


def _four_streams() -> Trace:
    launches = tuple(Launch("ampere_sgemm_128x64_tn", 90, stream=stream) for stream in (7, 13, 17, 20) * 2)
    return json.loads(to_json(Job(launches=launches, n_steps=3).rows(), metadata=HEAD))


def _everything() -> Trace:
    """Memory events, Python frames, shapes, counts of tokens, an asynchronous copy with bytes, a graph, idle rows."""
    top = _gpu_job()
    events: list[Event] = top["traceEvents"]
    begin = min(event["ts"] for event in events)
    for number in range(12):
        at, link = begin + 40 + number * 150, 5000 + number
        host, device = {"pid": 1000, "tid": 1000, "ts": at}, {"pid": 0, "tid": 7, "ts": at + 20}
        held = {"Total Allocated": 10**9 + number, "Total Reserved": 4 * 10**9, "Bytes": 2**20, "Addr": 2**40}
        held |= {"Device Id": 0, "Device Type": 1}
        frame = {"Python id": number, "Python parent id": max(number - 1, 0), "Python module id": 3, "Ev Idx": number}
        taken = {
            "External id": number,
            "Input Dims": [[1000, 64], [4, 128 + number]],
            "Input type": ["float", "long int"],
        }
        taken |= {"Sequence number": number, "Fwd thread id": 0, "Concrete Inputs": ["", "", "-1"]}
        copied = {"device": 0, "stream": 7, "correlation": link, "bytes": 2**24, "memory bandwidth (GB/s)": 3.1}
        flow = {"cat": "ac2g", "name": "ac2g"}
        events += [
            {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **host, "args": held},
            _range("python_function", f"train.py({number}): step", host, 120.0, **frame),
            {"ph": "C", "cat": "profkit", "name": "profkit.tokens", **host, "args": {"tokens": 100 + number}},
            _range("cpu_op", "aten::embedding", host, 3.0, **taken),
            _range("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", device, 11.0, **copied),
            _range("cuda_runtime", "cudaMemcpyAsync", host, 9.0, correlation=link),
            {"ph": "s", **flow, "id": link, **host},
            {"ph": "f", **flow, "bp": "e", "id": link, **device},
            _range("gpu_user_annotation", "nccl:all_reduce", {"pid": 0, "tid": 20, "ts": at}, 30.0),
            {"ph": "X", "cat": "overhead", "name": "CUPTI Buffer Flush", "pid": -1, "tid": 0, "ts": at, "dur": 2.0},
        ]
    return top


def _range(cat: str, name: str, where: Event, dur: float, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, **where, "dur": dur, "args": args}


def _nccl() -> Trace:
    """A rank of a job with NCCL's arguments."""
    return jobs.JOBS["groups"]()[1]


def _handover() -> Trace:
    job = Job(n_steps=4, launches=Job().launches[:10])
    return json.loads(to_json(job.rows(), metadata=HEAD, rank=0))


_MADE = {"handover": _handover, "gpu": _gpu_job, "streams": _four_streams, "everything": _everything, "nccl": _nccl}


@cache
def _kept_job(name: str) -> list[bytes]:
    if name in jobs.JOBS:
        return [packed(top) for top in jobs.JOBS[name]()]
    files = sorted((ROOT / "traces" / name).glob("rank*.json.gz"))
    return [packed(sliced(path, n_steps=5, n_ops=50)) for path in files]


_REAL_JOBS = ("ddp_comm_ws4", "ddp_straggler_ws4", "token_skew_packing_ws4", "fsdp_vlm_prefetch_on", "ddp_weak_ws2")


def drawn_job(rng: random.Random) -> list[Trace]:
    """Copies of the ranks of a job."""
    name = rng.choice(_REAL_JOBS) if rng.random() < 0.25 else rng.choice(sorted(jobs.JOBS))
    return [msgspec.json.decode(rank) for rank in _kept_job(name)]


@cache
def _capture(name: str) -> str:
    return (ROOT / "traces" / name / "capture.json").read_text()


def capture_json(rng: random.Random) -> dict[str, Any]:
    """A copy of a manifest as `profkit capture` writes it."""
    found: dict[str, Any] = json.loads(_capture(rng.choice(("ddp_comm_ws4", "fsdp_vlm_prefetch_on", "ddp_weak_ws2"))))
    return copy.deepcopy(found)
