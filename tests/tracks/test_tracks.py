"""The rows that pages draw: nothing is lost, nothing overlaps, and what proves a sentence adds up to its number."""

import base64
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import profkit
from profkit.model.documents.tracks import CATEGORIES, Role, Track, Tracks
from profkit.pipeline import analyse
from profkit.render.html.data import block_of, meta_of, safe_json
from profkit.testing import row_lists, trace_of
from profkit.tracks import tracks_of
from profkit.tracks.rows import lanes, reduced

TRACES = Path(__file__).resolve().parents[2] / "traces"
ONE = ("data_cpu", "overhead_cpu", "kernel_cpu")


def row(intervals: list[tuple[int, int]], category: str = "compute") -> Track:
    start, end = (np.array([pair[place] for pair in intervals], np.int64) for place in (0, 1))
    return Track(
        key="row",
        label="row",
        group="",
        role=Role.STREAM,
        start_ns=start,
        end_ns=end,
        name=np.arange(start.size, dtype=np.int32),
        category=np.full(start.size, CATEGORIES.index(category), np.uint8),
    )


def check_rows(tracks: Tracks) -> None:
    for track in tracks.tracks:
        assert (track.start_ns[1:] >= track.end_ns[:-1]).all(), track.key
        assert (track.end_ns >= track.start_ns).all()
        assert track.name.max(initial=-1) < len(tracks.names)
    assert len({track.key for track in tracks.tracks}) == len(tracks.tracks)


@given(row_lists())
def test_rows_of_any_trace_are_disjoint_and_the_budget_fills_the_window(rows):
    analysed = analyse(trace_of(rows))
    tracks = tracks_of(analysed)
    check_rows(tracks)
    parts = dict.fromkeys(CATEGORIES, 0)
    for track in tracks.tracks:
        if track.role is Role.BUDGET:
            for code, length in zip(track.category, track.end_ns - track.start_ns, strict=True):
                parts[CATEGORIES[code]] += int(length)
    budget = analysed.facts.budget.parts
    assert {name: parts[name] for name in budget} == budget


@pytest.mark.parametrize("name", ONE)
def test_what_proves_a_part_adds_up_to_its_number(name):
    report = profkit.triage(TRACES / f"{name}.pt.trace.json.gz", with_tracks=True)
    (tracks,) = report.tracks
    check_rows(tracks)
    parts = report.ranks[0].devices[0].budget.parts
    proofs = {proof.key: proof for proof in tracks.proofs}
    assert {name: proofs[f"part:{name}"].total_ns if ns else 0 for name, ns in parts.items()} == parts
    first = report.verdict.findings[0]
    assert proofs[f"finding:{first.id}"].n > 0
    assert sum(key.startswith("step:") for key in proofs) == report.ranks[0].steps.n


def test_every_rank_has_its_waits_on_one_clock():
    report = profkit.triage(TRACES / "ddp_straggler_ws4", with_tracks=True)
    assert [one.rank for one in report.tracks] == [0, 1, 2, 3]
    assert report.fleet is not None
    for tracks, known in zip(report.tracks, report.fleet.rows, strict=True):
        check_rows(tracks)
        waits = next(proof for proof in tracks.proofs if proof.key == "wait")
        assert waits.total_ns > 0 or known.wait_ns == 0
    late = next(finding for finding in report.findings if finding.id == "straggler.rank")
    first, *others = ({proof.key: proof for proof in one.proofs}["finding:straggler.rank"] for one in report.tracks)
    assert late.rank == 0
    held_ms, waited_ms = first.total_ns / 1e6, sorted(one.total_ns / 1e6 for one in others)
    assert waited_ms[0] / 2 < held_ms < 2 * waited_ms[-1]
    ends = [one.origin_unix_ns + one.shift_ns + one.window_ns[1] for one in report.tracks]
    assert max(ends) - min(ends) < 10**9


def test_tracks_are_made_only_where_they_are_asked_for():
    assert profkit.triage(TRACES / "data_cpu.pt.trace.json.gz").tracks == ()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=30))
def test_lanes_hold_each_interval_once_and_none_overlap(pairs):
    pairs = sorted((start, start + length) for start, length in pairs)
    pairs.sort(key=lambda pair: (pair[0], -pair[1]))
    start, end = (np.array([pair[place] for pair in pairs], np.int64) for place in (0, 1))
    found, n_left = lanes(start, end, 50)
    assert n_left == 0
    assert sorted(np.concatenate([*found, np.empty(0, np.intp)]).tolist()) == list(range(len(pairs)))
    for lane in found:
        assert (start[lane][1:] >= np.maximum(end[lane], start[lane] + 1)[:-1]).all()


def test_deeper_ranges_stand_under_what_encloses_them():
    start, end = np.array([0, 1, 2, 20]), np.array([10, 9, 3, 30])
    found, n_left = lanes(start, end, 2)
    assert [lane.tolist() for lane in found] == [[0, 3], [1]]
    assert n_left == 1


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=200, max_size=400), st.integers(64, 150))
def test_a_shortened_row_covers_what_it_did_and_keeps_the_longest(pairs, most):
    intervals, at = [], 0
    for gap, length in pairs:
        intervals.append((at + gap, at + gap + length))
        at += gap + length
    whole = row(intervals)
    short = reduced(whole, most)
    assert len(short) <= most
    assert short.is_reduced
    assert (short.start_ns[1:] >= short.end_ns[:-1]).all()
    inside = np.searchsorted(short.start_ns, whole.start_ns, "right") - 1
    assert (short.end_ns[inside] >= whole.end_ns).all()
    longest = int((whole.end_ns - whole.start_ns).max())
    assert longest in (short.end_ns - short.start_ns).tolist() or (short.name == -1).all()


def planes(data: bytes, at: int, n: int, n_bytes: int) -> tuple[NDArray[np.int64], int]:
    """The values of one column and where the next one begins, as the page's script reads them."""
    raw = np.frombuffer(data, np.uint8, n * n_bytes, at).reshape(n_bytes, n).astype(np.int64)
    value = sum(raw[place] << (8 * place) for place in range(n_bytes)) if n else np.empty(0, np.int64)
    if n_bytes < 8:
        value = np.where(value >= 1 << (8 * n_bytes - 1), value - (1 << (8 * n_bytes)), value)
    return np.asarray(value, np.int64), at + n * n_bytes


def test_the_page_has_every_row_to_the_nanosecond():
    ranks = profkit.triage(TRACES / "ddp_straggler_ws4", with_tracks=True).tracks
    meta = json.loads(safe_json(meta_of(ranks, is_cpu=True)))
    data = zlib.decompress(base64.b64decode(block_of(ranks)))
    n, at = int(np.frombuffer(data, "<u4", 1)[0]), 4
    columns = []
    for n_bytes in (6, 6, 4, 1):
        column, at = planes(data, at, n, n_bytes)
        columns.append(column)
    start, length, name, category = columns
    for told, tracks in zip(meta["ranks"], ranks, strict=True):
        for row_told, track in zip(told["tracks"], tracks.tracks, strict=True):
            own = slice(row_told["first"], row_told["first"] + row_told["n"])
            begin = np.cumsum(start[own]) + told["window_ns"][0]
            assert np.array_equal(begin, track.start_ns)
            assert np.array_equal(begin + length[own], track.end_ns)
            assert np.array_equal(name[own], track.name)
            assert np.array_equal(category[own] & 0xFF, track.category)
        assert told["names"] == list(tracks.names)
    assert data[at : at + 4] == sum(c["n"] for told in meta["ranks"] for c in told["curves"]).to_bytes(4, "little")


def test_no_name_can_end_its_element():
    text = safe_json({"names": ["</script><script>alert(1)</script>", "a & b", "\u2028"]})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["names"][0] == "</script><script>alert(1)</script>"


@pytest.mark.parametrize("source", ["ddp_straggler_ws4", "overhead_cpu.pt.trace.json.gz"])
def test_steps_are_as_long_as_the_report_says(source):
    report = profkit.triage(TRACES / source, with_tracks=True)
    for rank, tracks in zip(report.ranks, report.tracks, strict=True):
        drawn = next(track for track in tracks.tracks if track.role is Role.STEPS)
        assert (drawn.end_ns - drawn.start_ns).tolist() == list(rank.steps.durations_ns)
