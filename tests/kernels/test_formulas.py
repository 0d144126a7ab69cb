"""The formulas of ncu's rules on numbers that one can follow; that they are ncu's, test_real_reports.py shows."""

import pytest
from msgspec.structs import replace

from profkit.kernels.claims import Launch, issue_slots, of_time, of_warps
from profkit.kernels.speed import (
    ACHIEVED,
    DRAM_THROUGHPUT,
    L1_THROUGHPUT,
    L2_THROUGHPUT,
    MEMORY_THROUGHPUT,
    SM_THROUGHPUT,
    THEORETICAL,
    WAVES,
    waves,
)
from profkit.model.kernel import KernelProfile, Stall, Topic

L1_ELAPSED = "l1tex__throughput.avg.pct_of_peak_sustained_elapsed"
SECTORS, WAVEFRONTS = "memory_l2_theoretical_sectors_global", "memory_l1_wavefronts_shared"
USED = "smsp__sass_average_data_bytes_per_sector_mem_{}_op_{}"
HITS = "l1tex__t_sector_pipe_lsu_mem_{}_op_{}_hit_rate.pct"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
COUNTED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
FLOPS = "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum.per_cycle_elapsed"
FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
THREADS, ON = (f"smsp__thread_inst_executed{part}_per_inst_executed.ratio" for part in ("", "_pred_on"))
ISSUED = "smsp__issue_active.avg.per_cycle_active"


def cycles(unit, active, elapsed):
    return {f"{unit}__cycles_active.sum": active, f"{unit}__cycles_elapsed.sum": elapsed}


def launched(metrics, *, grid=None, block=None):
    return KernelProfile(source="s", number=0, name="k", function="k", grid=grid, block=block, metrics=metrics)


def told(profile):
    """The largest share of each topic, without those of nothing."""
    found: dict[Topic, float] = {}
    for topic, share in of_time(Launch.of(profile)):
        if share > found.get(topic, 0.0):
            found[topic] = share
    return found


SMS = {"launch__sm_count": 100.0}
LOADS, STORES = USED.format("global", "ld"), USED.format("global", "st")
READS = {f"{LOADS}.ratio": 8.0, f"{LOADS}.max_rate": 32.0}  # 3 of 4 bytes are for nobody
MIXED = {FLOPS.format("add"): 2.0, FLOPS.format("mul"): 4.0, FLOPS.format("fma"): 6.0}
OF_SMS = {"sm__cycles_active.avg": 60.0, "sm__cycles_active.max": 100.0}


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({SECTORS: 8.0, f"{SECTORS}_ideal": 2.0, **cycles("lts", 40, 50)}, {Topic.ACCESS: 0.75 * 0.8}),
        ({SECTORS: 8.0, f"{SECTORS}_ideal": 0.0, **cycles("lts", 60, 50)}, {Topic.ACCESS: 1.0}),
        ({SECTORS: 8.0, f"{SECTORS}_ideal": 8.0, **cycles("lts", 40, 50)}, {}),
        ({"memory_l2_sectors_global": 4.0, "memory_l2_sectors_global_ideal": 1.0, MEMORY_THROUGHPUT: 40.0},
         {Topic.ACCESS: 0.75 * 0.4}),
        ({SECTORS: 8.0, **cycles("lts", 40, 50)}, {}),
        ({WAVEFRONTS: 10.0, f"{WAVEFRONTS}_ideal": 6.0, **cycles("l1tex", 9, 10)}, {Topic.BANKS: 0.4 * 0.9}),
        ({CONFLICTS.format("ld"): 1.0, COUNTED.format("ld"): 10.0, L1_THROUGHPUT: 60.0}, {Topic.BANKS: 0.1 * 0.6}),
        ({CONFLICTS.format("st"): 5.0, COUNTED.format("st"): 10.0, CONFLICTS.format("ld"): 2.0,
          COUNTED.format("ld"): 10.0, L1_THROUGHPUT: 60.0}, {Topic.BANKS: 0.5 * 0.6}),
        ({CONFLICTS.format("ld"): 0.9, COUNTED.format("ld"): 10.0, L1_THROUGHPUT: 60.0}, {}),
        ({**READS, L1_ELAPSED: 20.0, L2_THROUGHPUT: 40.0, DRAM_THROUGHPUT: 10.0}, {Topic.ACCESS: 0.75 * 0.4}),
        ({**READS, L1_ELAPSED: 20.0, L2_THROUGHPUT: 40.0, HITS.format("global", "ld"): 75.0},
         {Topic.ACCESS: 0.75 * 0.2}),
        ({**READS, DRAM_THROUGHPUT: 80.0, HITS.format("global", "ld"): 50.0,
          "lts__t_sector_op_read_hit_rate.pct": 25.0}, {Topic.ACCESS: 0.75 * 0.8 * 0.5 * 0.75}),
        ({f"{STORES}.ratio": 8.0, f"{STORES}.max_rate": 32.0, DRAM_THROUGHPUT: 80.0,
          "lts__t_sector_op_write_hit_rate.pct": 50.0}, {Topic.ACCESS: 0.75 * 0.8 * 0.5}),
        ({f"{LOADS}.ratio": 32.0, f"{LOADS}.max_rate": 32.0, L1_ELAPSED: 90.0}, {}),
        ({f"{USED.format('local', 'st')}.ratio": 1.0, f"{USED.format('local', 'st')}.max_rate": 32.0, L1_ELAPSED: 64.0},
         {Topic.SPILLS: 31 / 32 * 0.64}),
        ({**MIXED, FMA: 80.0}, {Topic.FUSING: 0.25 * 0.8}),
        ({FLOPS.format("add"): 2.0, FLOPS.format("fma"): 8.0, FMA: 80.0}, {}),  # a tenth is not worth a word
        ({**OF_SMS, **cycles("sm", 50, 100)}, {Topic.IMBALANCE: 0.4 * 0.5}),
        ({**OF_SMS, "sm__cycles_active.avg": 92.0, **cycles("sm", 50, 100)}, {}),
        ({THREADS: 20.0, ON: 16.0, SM_THROUGHPUT: 50.0}, {Topic.DIVERGENCE: 0.5 * 0.5}),
        ({THREADS: 32.0, ON: 24.0, SM_THROUGHPUT: 50.0}, {}),
    ],
)  # fmt: skip
def test_what_a_rule_estimates(metrics, expected):
    assert told(launched(metrics)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metrics", "grid", "block", "expected"),
    [
        ({WAVES: 0.2, **SMS}, (25, 1, 1), (64, 1, 1), {Topic.GRID: 0.75}),
        ({WAVES: 0.9, **SMS}, (100, 1, 1), (64, 1, 1), {}),
        ({WAVES: 0.2}, (25, 1, 1), (64, 1, 1), {}),
        ({WAVES: 1.25, **SMS}, (200, 1, 1), (64, 1, 1), {Topic.TAIL: 0.375}),
        ({WAVES: 4.5, **SMS}, (900, 1, 1), (64, 1, 1), {Topic.TAIL: pytest.approx(0.1)}),
        ({WAVES: 5.5, **SMS}, (900, 1, 1), (64, 1, 1), {}),
        ({WAVES: 1.25, THEORETICAL: 50.0, ACHIEVED: 39.9}, (200, 1, 1), (64, 1, 1), {Topic.TAIL: 0.375}),
        ({WAVES: 1.25, THEORETICAL: 50.0, ACHIEVED: 40.1}, (200, 1, 1), (64, 1, 1), {}),
        ({}, None, (40, 1, 1), {Topic.BLOCK: pytest.approx(1 - 40 / 64)}),
        ({}, None, (16, 2, 1), {}),
        ({}, None, (1, 1, 1), {Topic.BLOCK: pytest.approx(31 / 32)}),
        ({}, None, (0, 1, 1), {}),
    ],
)
def test_what_the_size_of_a_launch_costs(metrics, grid, block, expected):
    assert told(launched(metrics, grid=grid, block=block)) == expected


@pytest.mark.parametrize(
    ("metrics", "fraction", "expected"),
    [
        ({THEORETICAL: 79.9}, 0.0, {Topic.OCCUPANCY: pytest.approx(0.201)}),
        ({THEORETICAL: 80.0, ACHIEVED: 70.0}, 0.0, {}),
        ({THEORETICAL: 80.0, ACHIEVED: 60.0}, 0.0, {Topic.ACHIEVED: 0.25}),
        ({}, 0.31, {Topic.STALL: 0.31}),
        ({}, 0.3, {}),
        ({ISSUED: 0.79}, 0.5, {Topic.STALL: 0.5}),
        ({ISSUED: 0.8}, 0.5, {}),
        ({WAVES: 0.75}, 0.0, {Topic.GRID: 0.25}),
        ({WAVES: 1.0}, 0.0, {}),
    ],
)
def test_what_a_lack_of_warps_may_cost(metrics, fraction, expected):
    waits = (Stall(reason="wait", cycles=1.0, fraction=fraction),) if fraction else ()
    assert dict(of_warps(replace(Launch.of(launched(metrics)), stalls=waits))) == expected


def test_what_the_issue_slots_leave():
    def left(name, value):
        return issue_slots(Launch.of(launched({name: value, SM_THROUGHPUT: 30.0})))

    slots = {share: left(ISSUED, share) for share in (0.2, 0.4, 0.59, 0.6)}
    assert slots == {0.2: 0.7, 0.4: 0.6, 0.59: pytest.approx(0.41), 0.6: 0.0}
    assert left("other", 0.2) is None
    assert left("smsp__issue_active.avg.pct_of_peak_sustained_active", 40.0) == pytest.approx(0.6)  # a details page


def test_a_page_of_two_decimals_says_no_wave_of_one_block():
    small = launched({WAVES: 0.0}, grid=(1, 1, 1), block=(64, 1, 1))
    assert waves(small).waves == 0.005
    known = replace(small, metrics={WAVES: 0.0, "launch__sm_count": 24.0, "launch__occupancy_limit_warps": 16.0})
    assert waves(known).waves == pytest.approx(1 / 384)
