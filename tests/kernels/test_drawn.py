"""Any rules beside any metrics: advice is a handful of sentences with numbers, and no share is above all of it."""

import random

import pytest

from profkit.kernels.assess import MOST_ADVICE, assess_all
from profkit.kernels.claims import RULES
from profkit.kernels.speed import (
    ACHIEVED,
    DRAM_THROUGHPUT,
    L1_THROUGHPUT,
    L2_THROUGHPUT,
    MEMORY_THROUGHPUT,
    SM_THROUGHPUT,
    THEORETICAL,
    WAVES,
)
from profkit.kernels.stalls import LATENCY
from profkit.model.kernel import KernelProfile, Rule
from tests.kernels.test_assess import check_report

WORDS = [
    *("", "partial wave", "masked off", "for local loads", "SMs have", "L2 Slices have", "is limited by the"),
    *(
        "(87% of the total",
        "which represent 200.5% of",
        "accounting for 999.9% of all sectors",
        "1.5x of the 3 sectors",
    ),
    *("which is 0.0x of the 1 sectors", "micro scheduler to select"),
]
SHARES = [SM_THROUGHPUT, MEMORY_THROUGHPUT, DRAM_THROUGHPUT, L1_THROUGHPUT, L2_THROUGHPUT, THEORETICAL, ACHIEVED]
COUNTS = [
    *(WAVES, "launch__sm_count", "launch__occupancy_limit_warps", "launch__occupancy_limit_registers", LATENCY),
    *("smsp__issue_active.avg.per_cycle_active", "gpu__time_duration.sum", "memory_l2_theoretical_sectors_global"),
    *("memory_l2_theoretical_sectors_global_ideal", "lts__cycles_active.sum", "lts__cycles_elapsed.sum"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.max_rate",
    "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    *(f"sm__cycles_active.{part}" for part in ("avg", "max", "sum")),
    "sm__cycles_elapsed.sum",
]
NAMES = [
    *("k", "reduce_kernel", "ampere_sgemm_64x64", "triton_poi_fused_add_0", "void cudnn::ops::x"),
    *("void at::native::vectorized_elementwise_kernel<4>", "cutlass_80_tensorop_bf16_s16816gemm_align2"),
]


def drawn(rng: random.Random) -> KernelProfile:
    values = [0.0, -5.0, 1.0, 1e-9, rng.uniform(0, 1), rng.uniform(0, 100), rng.uniform(0, 1000), 1e18]
    metrics = {name: rng.choice(values) for name in COUNTS if rng.random() < 0.6}
    metrics |= {name: rng.choice([0.0, 1e-9, rng.uniform(0, 100), 1000.0]) for name in SHARES if rng.random() < 0.8}
    rules = (
        Rule(
            id=rng.choice([*RULES, "CPIStallBarrier", "ANewRule", "HighPipeUtilization"]),
            kind="OPT",
            message=rng.choice(WORDS),
            speedup_fraction=rng.choice([None, 0.0, 0.05, 0.2, 0.6, 1.0, 50.0]),
            speedup_scope=rng.choice(["global", "local", ""]),
        )
        for _ in range(rng.randint(0, 4))
    )
    return KernelProfile(
        source="s", number=0, name=rng.choice(NAMES), function="k", rules=tuple(rules), metrics=metrics,
        grid=rng.choice([None, (8, 1, 1), (0, 1, 1)]), block=rng.choice([None, (64, 1, 1), (33, 1, 1), (1024, 1, 1)]),
        compute_capability=rng.choice(["", "7.5", "9.0", "x"]),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_any_rules_beside_any_metrics(seed):
    rng = random.Random(seed)  # noqa: S311 - an example, no secret
    report = assess_all([drawn(rng) for _ in range(60)], sources=["s"])
    check_report(report)
    for one in report.kernels:
        assert len(one.advice) <= MOST_ADVICE
        assert len({item.fix for item in one.advice}) == len(one.advice)
        assert all(item.at_most is None or 0 <= item.at_most <= 1 for item in one.advice)
