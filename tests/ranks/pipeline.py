"""Simulated pipelines: GPipe and 1F1B, whose bubble is known from the schedule itself."""

import numpy as np
from msgspec.structs import replace

from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import (
    PHASES,
    BlockRows,
    CollectiveRows,
    Group,
    LeadRanges,
    NameRows,
    RankSummary,
    StepRows,
)

MS = 1_000_000


def schedule(kind, rank, p, m, v):
    """Give a rank's work in order, as (what, stage, micro-batch); with chunks rank r has the stages r, p + r, ..."""
    if kind == "gpipe":
        chunks = range(v)
        forward = [("F", chunk * p + rank, k) for chunk in chunks for k in range(m)]
        return forward + [("B", chunk * p + rank, k) for chunk in reversed(chunks) for k in range(m)]
    warm = min(p - 1 - rank, m)
    out = [("F", rank, k) for k in range(warm)]
    for k in range(warm, m):
        out += [("F", rank, k), ("B", rank, k - warm)]
    return out + [("B", rank, k) for k in range(m - warm, m)]


def pipeline(kind="gpipe", *, p=4, m=8, v=1, n_steps=3, lengths=None):
    """Give the summaries of a pipeline: forward `lengths[rank]` ms a chunk, backward twice that, no transfer time."""
    length = [MS * each for each in lengths or [1] * p]
    rows = [[] for _ in range(p)]  # kind, peer, start, end
    blocks = [[] for _ in range(p)]
    steps, begin = [], 10 * MS
    for _ in range(n_steps):
        done, now = {}, [begin] * p
        todo = [schedule(kind, rank, p, m, v) for rank in range(p)]
        while any(todo):
            for rank in range(p):
                while todo[rank] and _can_run(todo[rank][0], done, p * v):
                    what, stage, k = todo[rank].pop(0)
                    source = stage - 1 if what == "F" else stage + 1
                    if (what, source, k) in done:
                        arrived = max(done[what, source, k], now[rank])
                        if arrived > now[rank]:
                            blocks[rank].append((now[rank], arrived, len(rows[rank])))
                        rows[rank].append((CollectiveKind.RECV, source % p, now[rank], arrived))
                        now[rank] = arrived
                    now[rank] += length[rank] * (1 if what == "F" else 2)
                    done[what, stage, k] = now[rank]
                    to = stage + 1 if what == "F" else stage - 1
                    if 0 <= to < p * v:
                        rows[rank].append((CollectiveKind.SEND, to % p, now[rank], now[rank]))
        steps.append((begin, max(now)))
        begin = max(now)
    return [_summary(rank, p, (rows[rank], blocks[rank], steps), length[rank] * 3 * m * v) for rank in range(p)]


def _can_run(work, done, n_stages):
    what, stage, k = work
    source = stage - 1 if what == "F" else stage + 1
    return not 0 <= source < n_stages or (what, source, k) in done


def _summary(stage, p, times, busy_ns):
    rows, blocks, steps = times
    n, starts = len(rows), np.array([begin for begin, _ in steps])
    names = sorted({(min(stage, row[1]), max(stage, row[1])) for row in rows})
    groups = tuple(Group(name=f"pp{pair}", ranks=pair, size=2) for pair in names)
    start = np.array([row[2] for row in rows])
    zero = np.zeros(n, np.int64)
    waited = np.array(blocks, np.int64).reshape(-1, 3)
    n_steps = len(steps)
    phase = np.zeros((n_steps, len(PHASES)), np.int64)
    phase[:, 1] = busy_ns
    return RankSummary(
        rank=stage,
        world_size=p,
        source="",
        host=f"node{stage}",
        origin_unix_ns=0,
        window_ns=(steps[0][0], steps[-1][1]),
        step_source="ProfilerStep",
        groups=groups,
        strings=("send",),
        collectives=CollectiveRows(
            group=np.array([names.index((min(stage, row[1]), max(stage, row[1]))) for row in rows], np.int32),
            kind=np.array([row[0] for row in rows], np.int8),
            name=np.zeros(n, np.int32),
            dtype=np.full(n, -1, np.int32),
            in_elements=zero + 1000,
            out_elements=zero + 1000,
            seq=zero - 1,
            peer=zero - 1,
            issued_ns=start,
            start_ns=start,
            end_ns=np.array([row[3] for row in rows]),
            step=(np.searchsorted(starts, start, "right") - 1).astype(np.int32),
            issuer=np.full(n, -1, np.int32),
            hidden_ns=zero,
            exposed_once_ns=np.array([row[3] for row in rows]) - start,
            lead_ns=np.zeros((n, len(PHASES)), np.int64),
            ready_ns=start,
            own_ns=np.zeros((n, len(PHASES)), np.int64),
            bucket_bytes=zero - 1,
        ),
        steps=StepRows(
            number=np.arange(n_steps),
            start_ns=starts,
            end_ns=np.array([end for _, end in steps]),
            phase_ns=phase,
            comm_ns=np.zeros(n_steps, np.int64),
            **dict.fromkeys(("tokens", "padded_tokens", "samples", "embedded"), np.zeros(n_steps, np.int64)),
        ),
        ranges=NameRows.none(name=np.int32),
        lead_ranges=LeadRanges.none(name=np.int32),
        quiet=LeadRanges.none(name=np.int32),
        work=NameRows.none(name=np.int32),
        blocks=BlockRows(start_ns=waited[:, 0].copy(), end_ns=waited[:, 1].copy(), row=waited[:, 2].copy()),
    )


def in_one_group(summary):
    """Give the summary with all stages in one process group, whose peers the trace names."""
    rows = summary.collectives
    ends = [group.ranks for group in summary.groups]
    peer = np.array([sum(ends[code]) - summary.rank for code in rows.group])
    group = Group(name="pp", ranks=tuple(range(summary.world_size)), size=summary.world_size)
    changed = replace(rows, peer=peer, group=np.zeros(len(rows), np.int32))
    return replace(summary, groups=(group,), collectives=changed)
