"""What comes first: ncu's largest estimate of the time, cut to what can be, and why where it does not."""

import pytest
from msgspec.structs import replace

from profkit.kernels.assess import assess, assess_all
from profkit.kernels.speed import SM_THROUGHPUT
from profkit.kernels.stalls import LATENCY
from profkit.model.kernel import KernelClass, Rule, Topic
from profkit.render.words.kernels import headline
from tests.kernels.test_assess import profile, stalled


def rule(rule_id, fraction, scope="global", message=""):
    return Rule(id=rule_id, kind="OPT", message=message, speedup_fraction=fraction, speedup_scope=scope)


def first_of(one):
    """Topic of the first advice, and ncu's rule that it answers."""
    top = assess(one).advice[0]
    return top.topic, top.estimate.rule if top.estimate else None


def why(one):
    """What the report says where ncu's largest estimate is not first; "" where it is."""
    return "".join(item.statement for item in assess(one).evidence if "it is not first" in item.statement)


TAIL = rule("LaunchConfiguration", 0.5, message="a partial wave of 136 thread blocks")
L2_SLICES = "One or more L2 Slices have a much lower number of active cycles"
FEW_SPILLS = (
    "accounting for 0.12% of all sectors requested in L1TEX. They amount to 0.05% of all executed instructions."
)
"""The rule of 2025 estimates a tenth of the time for each kind of access that is there at all, however few."""
DRAM_READS = (
    "1,100 sectors to be read from DRAM, which is 1.1x of the 1,000 sectors which cause a miss in the L2 cache."
)
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
BELOW = {L2: 21.0, "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 9.0}


def test_advice_follows_ncus_own_estimates_of_several_the_largest():
    rules = (
        rule("MemoryCacheAccessPattern", 0.45),
        rule("MemoryCacheAccessPattern", 0.43),
        rule("UncoalescedGlobalAccess", 0.74),
        TAIL,
        rule("TheoreticalOccupancy", 0.9, "local"),
        rule("WorkloadImbalance", 0.06, message="One or more SMs have a much lower number of active cycles"),
        rule("WorkloadImbalance", 0.8, message=L2_SLICES),
    )
    one = assess(replace(profile(sm=10.0, memory=62.0, waves=1.5, rules=rules, **BELOW), name="copy_blocked"))
    estimated = [(item.topic, item.estimate.rule, item.estimate.fraction) for item in one.advice if item.estimate]
    assert estimated == [(Topic.ACCESS, "UncoalescedGlobalAccess", 0.74), (Topic.TAIL, "LaunchConfiguration", 0.5)]
    tail = one.advice[1]
    assert "at most 25.0 % of the kernel's time, though ncu's rule LaunchConfiguration says" in tail.because.statement
    assert tail.at_most == pytest.approx(0.25)
    assert "coalesce" in one.advice[0].fix
    assert "74.0 % of the kernel's time" in one.advice[0].because.statement


@pytest.mark.parametrize(
    ("told", "topic"),
    [
        (rule("UncoalescedGlobalAccess", 0.4), Topic.ACCESS),
        (rule("MemoryCacheAccessPattern", 0.4, message="The memory access pattern for local loads"), Topic.SPILLS),
        (rule("LocalMemoryUsage", 0.4, message="accounting for 40.62% of all sectors requested"), Topic.SPILLS),
        (rule("SharedMemoryConflicts", 0.4), Topic.BANKS),
        (rule("UncoalescedSharedAccess", 0.4), Topic.BANKS),
        (rule("LaunchConfiguration", 0.4, message="some threads in a warp are masked off"), Topic.BLOCK),
        (rule("TheoreticalOccupancy", 0.4), Topic.OCCUPANCY),
        (rule("AchievedOccupancy", 0.4), Topic.ACHIEVED),
        (rule("CPIStall", 0.4), Topic.STALL),
        (rule("CPIStallLongScoreboard", 0.4), Topic.STALL),
        (rule("WorkloadImbalance", 0.4, message="One or more SMs have a much higher number"), Topic.IMBALANCE),
        (rule("WorkloadImbalance", 0.4, message=L2_SLICES), Topic.SLICES),
        (rule("ThreadDivergence", 0.4), Topic.DIVERGENCE),
        (rule("FPInstructions", 0.4), Topic.FUSING),
        (rule("SOLFPRoofline", 0.4), Topic.PRECISION),
        (rule("SlowPipeLimiter", 0.4), Topic.PRECISION),
        (rule("MemoryApertureUsage", 0.4), Topic.PLACE),
        (rule("ARuleOf2027", 0.4, message="Use less of it. There is more."), Topic.OTHER),
    ],
)
def test_each_rule_with_a_large_estimate_comes_first(told, topic):
    one = profile(sm=20.0, memory=30.0, waves=20.0, rules=(rule("FPInstructions", 0.3), told))
    assert first_of(one) == (topic, told.id)
    assert why(one) == ""
    [first] = [item for item in assess(one).advice if item.topic is topic]
    assert first.fix
    assert "40.0 % of the kernel's time" in first.because.statement


def test_a_rule_that_is_not_known_is_quoted():
    told = rule("ARuleOf2027", 0.4, message="Use less of it. There is more.")
    assert assess(profile(sm=20.0, memory=30.0, rules=(told,))).advice[0].fix == "what ncu's rule says: Use less of it"


def test_an_estimate_for_a_part_of_the_device_is_none_of_the_kernels_time():
    rules = (rule("TheoreticalOccupancy", 0.81, "local"),)
    occupancy = {"sm__maximum_warps_per_active_cycle_pct": 18.75, "launch__occupancy_limit_registers": 1.0}
    one = assess(profile(sm=20.0, memory=20.0, waves=1.4, rules=rules, **occupancy))
    [told] = [item for item in one.advice if item.estimate]
    assert "for one part of the device" in told.because.statement
    assert told.at_most is None


@pytest.mark.parametrize(
    ("told", "metrics", "reason"),
    [
        (TAIL, {"sm": 20.0, "memory": 20.0, "waves": 1.95}, "the last of 1.95 waves leaves only 2.5 %"),
        (TAIL, {"sm": 10.0, "memory": 85.0, "waves": 2.1}, "memory is at 85.0 % of its peak, so that only less work"),
        (rule("CPIStall", 0.4), {"sm": 10.0, "memory": 85.0, "waves": 9.0}, "so that only less work helps"),
        (rule("UncoalescedGlobalAccess", 0.6), {"sm": 95.0, "memory": 9.0, "waves": 9.0}, "compute is at 95.0 %"),
        (rule("FPInstructions", 0.3), {"sm": 10.0, "memory": 95.0, "waves": 9.0}, "memory is at 95.0 %"),
        (
            rule("TheoreticalOccupancy", 0.6),
            {"sm": 20.0, "memory": 20.0, "waves": 0.97},
            "the grid fills 0.97 of a wave",
        ),
        (rule("WorkloadImbalance", 0.6, message=L2_SLICES), {"sm": 20.0, "memory": 20.0, **BELOW}, "neither L2 nor"),
        (rule("MemoryL2Compression", 0.6), {"sm": 20.0, "memory": 20.0}, "torch allocates none"),
        (rule("LocalMemoryUsage", 0.2, message=FEW_SPILLS), {"sm": 20.0, "memory": 20.0}, "local memory takes 0.12 %"),
        (
            rule("MemoryCacheAccessPattern", 0.9, message=DRAM_READS),
            {"sm": 20.0, "memory": 92.0},
            "DRAM reads only 1.1x of the sectors that L2 misses",
        ),
    ],
)
def test_what_cannot_be_does_not_come_first_and_the_report_says_why(told, metrics, reason):
    occupied = {"sm__maximum_warps_per_active_cycle_pct": 50.0, "launch__occupancy_limit_registers": 4.0}
    one = profile(**metrics, **occupied, rules=(told,))
    top = assess(one).advice[0]
    assert top.estimate is None or top.estimate.rule != told.id
    assert reason in why(one)
    assert f"{told.speedup_fraction:.1%}".replace("%", " %") in why(one)


@pytest.mark.parametrize(
    ("told", "metrics", "at_most"),
    [
        (rule("CPIStall", 0.6), {"sm": 20.0, "memory": 70.0}, 0.3),
        (rule("SharedMemoryConflicts", 0.6), {"sm": 20.0, "memory": 75.0, **BELOW, L2: 75.0}, 0.25),
        (rule("SharedMemoryConflicts", 0.6), {"sm": 55.0, "memory": 75.0, **BELOW}, 0.45),
        (
            rule("MemoryCacheAccessPattern", 0.9, message=DRAM_READS.replace("1.1x", "2.0x")),
            {"sm": 9, "memory": 70},
            0.5,
        ),
        (rule("WorkloadImbalance", 0.6, message=L2_SLICES), {"sm": 30.0, "memory": 70.0, **BELOW, L2: 70.0}, 0.6),
        (rule("LocalMemoryUsage", 0.4, message="They amount to 25.00% of all executed"), {"sm": 9, "memory": 9}, 0.25),
    ],
)
def test_an_estimate_is_cut_to_what_the_change_leaves_as_it_is(told, metrics, at_most):
    top = assess(profile(**metrics, waves=20.0, rules=(told,))).advice[0]
    assert top.at_most == pytest.approx(at_most)
    assert top.estimate.rule == told.id
    assert ("though ncu's rule" in top.because.statement) is (at_most < told.speedup_fraction)


def test_an_estimate_that_another_overtakes_is_told_with_both_numbers():
    rules = (rule("CPIStall", 0.6), rule("UncoalescedGlobalAccess", 0.5))
    one = assess(profile(sm=20.0, memory=70.0, waves=20.0, rules=rules))
    assert [item.topic for item in one.advice][:2] == [Topic.ACCESS, Topic.STALL]
    [said] = [item for item in one.evidence if "it is not first" in item.statement]
    assert (said.metric, said.value, said.unit) == ("rule:CPIStall", pytest.approx(60.0), "%")
    assert said.statement == (
        "ncu's largest estimate is 60.0 % (rule CPIStall); it is not first: memory is at 70.0 % of its peak, which this"
        " change leaves as it is, so at most 30.0 % can be saved"
    )


def test_a_handful_of_advice_each_with_its_number():
    rules = (
        rule("LaunchConfiguration", 0.6, message="some threads in a warp are masked off"),
        TAIL,
        rule("FPInstructions", 0.4),
        rule("ThreadDivergence", 0.3),
        rule("CPIStall", 0.25),
        rule("MemoryApertureUsage", 0.2),
    )
    one = assess(replace(profile(sm=20.0, memory=30.0, waves=1.5, rules=rules), block=(40, 1, 1)))
    told = [(item.topic, item.because.metric, round(item.because.value, 6)) for item in one.advice]
    assert told == [
        (Topic.BLOCK, "launch__block_size", 40),
        (Topic.FUSING, "rule:FPInstructions", 40.0),
        (Topic.DIVERGENCE, "rule:ThreadDivergence", 30.0),
        (Topic.TAIL, "launch__waves_per_multiprocessor", 1.5),
        (Topic.STALL, "rule:CPIStall", 25.0),
    ]
    assert one.advice[0].because.statement.startswith("40 threads per block; ncu's rule LaunchConfiguration")
    assert one.advice[3].because.statement.startswith("1.5 waves: the last one leaves 25.0 % of the time unused; ")


def test_what_more_warps_give_is_what_the_issue_slots_leave():
    low = {"sm__maximum_warps_per_active_cycle_pct": 25.0, "launch__occupancy_limit_registers": 1.0}
    issued = "smsp__issue_active.avg.per_cycle_active"
    found = {
        (share, memory): assess(profile(sm=10.0, memory=memory, waves=9.0, **low, **{issued: share})).advice[0].at_most
        for share, memory in ((0.1, 10.0), (0.5, 10.0), (0.1, 55.0))
    }
    assert found == {(0.1, 10.0): pytest.approx(0.75), (0.5, 10.0): 0.5, (0.1, 55.0): pytest.approx(0.45)}


def test_what_the_last_wave_leaves_idle_may_be_little_and_is_told_where_there_is_nothing_else():
    one = assess(profile(sm=20.0, memory=20.0, waves=1.9, rules=(TAIL,)))
    assert [(item.topic, round(item.at_most, 2)) for item in one.advice if item.at_most] == [(Topic.TAIL, 0.05)]


def test_what_follows_from_a_small_grid_is_advice_on_the_grid():
    rules = (
        rule("AchievedOccupancy", 0.6),
        rule("WorkloadImbalance", 0.3, message="SMs have"),
        rule("LaunchConfiguration", 0.9),
    )
    one = assess(replace(profile(sm=5.0, memory=9.0, waves=0.1, rules=rules), name="reduce_kernel"))
    assert {item.topic for item in one.advice} == {Topic.GRID}
    assert {item.estimate.rule for item in one.advice} == {"LaunchConfiguration"}
    alone = profile(sm=5.0, memory=9.0, waves=0.1, rules=rules[:1])
    assert first_of(alone) == (Topic.GRID, "AchievedOccupancy")
    assert why(alone) == ""


def test_a_lack_of_warps_with_a_large_tail_is_advice_on_the_tail():
    rules = (rule("AchievedOccupancy", 0.4),)
    assert first_of(profile(sm=20.0, memory=20.0, waves=1.3, rules=rules)) == (Topic.TAIL, "AchievedOccupancy")
    assert first_of(profile(sm=20.0, memory=20.0, waves=1.95, rules=rules)) == (Topic.ACHIEVED, "AchievedOccupancy")


@pytest.mark.parametrize(
    ("told", "waves", "topic"),
    [
        (rule("AchievedOccupancy", 0.4), 0.3, Topic.GRID),
        (rule("AchievedOccupancy", 0.4), 0.94, Topic.ACHIEVED),  # a grid that is nearly full explains little of it
        (rule("Occupancy", 0.4, message="is limited by. The difference"), 0.94, Topic.ACHIEVED),
        (rule("Occupancy", 0.4, message="is limited by. The difference"), 0.3, Topic.GRID),
        (rule("TheoreticalOccupancy", 0.4), 0.3, Topic.GRID),
        (rule("WorkloadImbalance", 0.3, message="SMs have"), 0.94, Topic.IMBALANCE),
        (rule("WorkloadImbalance", 0.3, message="SMs have"), 1.3, Topic.TAIL),
        (rule("WorkloadImbalance", 0.6, message="SMs have"), 1.3, Topic.IMBALANCE),  # more than a last wave can leave
    ],
)
def test_what_makes_a_lack_of_warps(told, waves, topic):
    sms = {"launch__sm_count": 4.0}  # and 8 blocks
    assert first_of(profile(sm=20.0, memory=20.0, waves=waves, rules=(told,), **sms)) == (topic, told.id)
    idle = profile(sm=20.0, memory=20.0, waves=0.2, rules=(told,), launch__sm_count=16.0)
    assert first_of(idle)[0] is Topic.GRID


@pytest.mark.parametrize(("reason", "topic"), [("long_scoreboard", Topic.ROOF), ("barrier", Topic.ROOF)])
def test_waiting_for_a_full_dram_is_advice_to_move_less(reason, topic):
    ratio = f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    one = profile(sm=20.0, memory=88.0, waves=20.0, rules=(rule("CPIStall", 0.12),), **{ratio: 8.0, LATENCY: 10.0})
    assert assess(one).advice[0].topic is topic
    assert first_of(one)[1] == ("CPIStall" if reason == "long_scoreboard" else None)
    assert ("only less work helps" in why(one)) is (reason == "barrier")


def test_an_older_ncu_calls_shares_of_the_time_local():
    """As 2023.2: 40 % of the wavefronts, weighed by the time of the unit; of occupancy the time."""
    said = "This results in 4194304 bank conflicts,  which represent 40.00% of the overall 10485760 wavefronts"
    rules = (
        rule("SharedMemoryConflicts", 0.37, "local", message=said),
        rule("Occupancy", 0.3, message="is limited by"),
    )
    one = profile(sm=50.0, memory=60.0, waves=9.0, rules=rules)
    assert first_of(one) == (Topic.BANKS, "SharedMemoryConflicts")
    assert "40 % of the shared-memory wavefronts are excess" in assess(one).advice[0].because.statement
    assert "by the formulas of ncu since 2024 the first advice can save more" in why(one)
    silent = (replace(rules[0], speedup_fraction=None, speedup_scope=""),)
    assert assess(profile(sm=50.0, memory=60.0, waves=9.0, rules=silent)).advice[0].at_most == pytest.approx(0.24)


def test_of_equal_estimates_the_cause_comes_before_the_sign():
    rules = (rule("AchievedOccupancy", 0.116), rule("CPIStall", 0.116))
    assert first_of(profile(sm=20.0, memory=20.0, waves=9.0, rules=rules)) == (Topic.STALL, "CPIStall")


def test_warps_that_are_ready_are_nothing_to_do():
    said = "each warp of this kernel spends 1.3 cycles being stalled waiting for the micro scheduler to select the warp"
    one = stalled({"not_selected": 5.0, "wait": 4.0}, **{LATENCY: 10.0})
    one = replace(one, rules=(rule("CPIStall", 0.3, message=said),))
    assert [item.topic for item in assess(one).advice] == [Topic.STALL]
    assert "wait" in assess(one).advice[0].because.metric
    assert "there are enough of them" in why(one)
    assert not [item for item in assess(stalled({"gmma": 8.0}, **{LATENCY: 10.0})).advice if "nothing" in item.fix]


def test_where_warps_issue_often_occupancy_is_no_advice():
    """NVIDIA's rule on issue slots is silent from 0.6 instructions per cycle on."""
    low = {"sm__maximum_warps_per_active_cycle_pct": 25.0, "launch__occupancy_limit_registers": 1.0}
    issued = "smsp__issue_active.avg.per_cycle_active"
    topics = {
        share: [
            item.topic for item in assess(profile(sm=55.0, memory=30.0, waves=9.0, **low, **{issued: share})).advice
        ]
        for share in (0.3, 0.7)
    }
    assert topics == {0.3: [Topic.OCCUPANCY], 0.7: [Topic.STALL]}
    assert "--set full" in assess(profile(sm=55.0, memory=30.0, waves=9.0)).advice[0].fix


def test_one_block_on_an_sm_is_told_to_be_smaller():
    few = {
        "sm__maximum_warps_per_active_cycle_pct": 66.7,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 41.0,
        "launch__occupancy_limit_warps": 1.0,
    }
    one = replace(profile(sm=8.0, memory=50.0, waves=28.4, **few), block=(32, 32, 1))
    assert "only one of 1024 threads" in assess(one).advice[0].fix


def test_without_throughputs_the_size_of_the_launch_is_advice_still():
    one = profile(launch__grid_size=16.0, launch__sm_count=108.0, waves=0.15)
    assert [item.topic for item in assess(one).advice] == [Topic.GRID, Topic.GRID][: len(assess(one).advice)]
    assert assess(one).speed.kernel_class is KernelClass.NO_DATA


def test_a_failed_pass_is_said():
    failed = replace(profile(waves=4.0), unmeasured=(SM_THROUGHPUT, "dram__bytes.sum"))
    report = assess_all([failed, profile(sm=50.0)], sources=["s"])
    [warning] = report.warnings
    assert "2 of 3 metrics are NaN" in warning
    assert SM_THROUGHPUT in warning
    assert headline(report.kernels[0]) == "the throughputs could not be measured (NaN): a pass of ncu failed"
    assert headline(report.kernels[1]) == "the throughputs were not collected"


@pytest.mark.parametrize(("lasts_ns", "is_told"), [(1_600.0, False), (4_999.0, False), (5_000.0, True), (None, True)])
def test_of_a_launch_as_short_as_an_empty_one_a_formula_gives_no_percentage(lasts_ns, is_told):
    known = {} if lasts_ns is None else {"gpu__time_duration.sum": lasts_ns}
    held = {"launch__grid_size": 1.0, "device__attribute_multiprocessor_count": 24.0}
    one = assess(replace(profile(sm=0.1, memory=1.3, waves=0.0026, **held, **known), block=(20, 1, 1)))
    grid, block = one.advice[:2]
    assert (grid.topic, block.topic) == (Topic.GRID, Topic.BLOCK)
    for item in (grid, block):
        assert ("of the kernel's time" in item.because.statement) is is_told
        assert (item.at_most is not None) is is_told
    assert "1 block for 24 SMs" in grid.because.statement
    ncus = assess(replace(one.profile, rules=(rule("LaunchConfiguration", 0.9, message="fewer blocks than SMs"),)))
    assert "ncu's rule LaunchConfiguration" in ncus.advice[0].because.statement
