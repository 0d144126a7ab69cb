"""What ncu prints, as CSV (details, raw) and as text."""

import random

from tests.fuzz import cells, damage
from tests.fuzz.documents import Case, File, Lines

_HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description",'
    '"Estimated Speedup Type","Estimated Speedup"'
)
_METRICS = [
    ("GPU Speed Of Light Throughput", "Duration", "us", "1,234.50"),
    ("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%", "41.30"),
    ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "61.84"),
    ("GPU Speed Of Light Throughput", "DRAM Throughput", "%", "60.1"),
    ("GPU Speed Of Light Throughput", "SM Frequency", "Ghz", "1.5"),
    ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "196.46"),
    ("Memory Workload Analysis", "L2 Hit Rate", "%", "55.0"),
    ("Launch Statistics", "Waves Per SM", "", "2.03"),
    ("Launch Statistics", "Registers Per Thread", "register/thread", "64"),
    ("Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"),
    ("Occupancy", "Achieved Occupancy", "%", "48.1"),
    ("Occupancy", "Theoretical Occupancy", "%", "75"),
    ("Occupancy", "Block Limit Registers", "block", "4"),
    ("Occupancy", "Block Limit Shared Mem", "block", "6"),
    ("Scheduler Statistics", "No Eligible", "%", "71.2"),
    ("Scheduler Statistics", "Issued Warp Per Scheduler", "", "0.29"),
    ("Warp State Statistics", "Warp Cycles Per Issued Instruction", "cycle", "14.2"),
]
_KERNELS = [
    "void ns::k<(int)4>(float *, int)",
    "ampere_sgemm_128x64_tn",
    "vectorized_elementwise_kernel",
    "ncclDevKernel_AllReduce",
]
_RULES = [
    ("SpeedOfLight", "SOLBottleneck", "Memory is more heavily utilized than Compute", ""),
    ("SourceCounters", "UncoalescedGlobalAccess", "a total of 5 excessive sectors (87% of the total 6 sectors)", "79"),
    ("MemoryWorkloadAnalysis_Tables", "SharedMemoryConflicts", "which represent 40.00% of the overall 5", "37.06"),
    ("MemoryWorkloadAnalysis_Tables", "LocalMemoryUsage", "accounting for 0.12% of all sectors requested", "20.1"),
    ("MemoryWorkloadAnalysis_Tables", "MemoryCacheAccessPattern", "which is 1.1x of the 1,000 sectors", "90"),
    ("LaunchStats", "LaunchConfiguration", "2 full waves and a partial wave of 32 thread blocks", "33.33"),
    ("Occupancy", "Occupancy", "is limited by the number of required registers", "44.76"),
    ("WarpStateStats", "CPIStall", "spends 5.0 cycles being stalled", "1e9"),
    ("WorkloadDistribution", "WorkloadImbalance", "One or more L2 Slices have a much lower number", "14.5"),
    ("ANewSection", "ANewRule", "Words. More.", "60"),
]
_RAW_METRICS = {
    "gpu__time_duration.sum": ("us", "1,234.50"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "41.3"),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "61.84"),
    "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "61.84"),
    "dram__bytes.sum.per_second": ("Gbyte/s", "196.46"),
    "dram__bytes.sum": ("Mbyte", "240"),
    "launch__waves_per_multiprocessor": ("", "2.03"),
    "launch__registers_per_thread": ("register/thread", "64"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "48"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "75"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "9.1"),
    "smsp__average_warp_latency_per_inst_issued.ratio": ("cycle", "14.2"),
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum": ("inst", "1e9"),
    "device__attribute_display_name": ("", "NVIDIA H100"),
    "device__attribute_multiprocessor_count": ("", "132"),
}


def _head(rng: random.Random, number: int, names: list[str]) -> list[str]:
    launched = rng.choice(names)
    return [*(str(number), "7", "python3", "host", launched, "1", "7", "(128, 1, 1)", "(2048, 2, 1)", "0", "9.0")]


def details(rng: random.Random, names: list[str] = _KERNELS) -> list[str]:
    """A details page of some of these kernels."""
    lines = [_HEADER]
    for number in range(rng.choice([1, 2, 4])):
        head = _head(rng, number, names)
        lines += [cells.joined([*head, *metric, "", "", "", "", ""]) for metric in _METRICS]
        lines += [
            cells.joined([*head, section, "", "", "", rule, "OPT", said, rng.choice(["global", "local", ""]), percent])
            for section, rule, said, percent in rng.sample(_RULES, rng.choice([1, 3]))
        ]
    return lines


def raw(rng: random.Random) -> list[str]:
    """A raw page."""
    names = [*_RAW_METRICS]
    lines = [cells.joined([*split_header(), *names])]
    lines.append(cells.joined([*[""] * 11, *(unit for unit, _ in _RAW_METRICS.values())]))
    lines += [
        cells.joined([*_head(rng, n, _KERNELS), *(value for _, value in _RAW_METRICS.values())])
        for n in range(rng.choice([1, 3]))
    ]
    return lines


def split_header() -> list[str]:
    """The columns that every page has."""
    return cells.split(_HEADER)[:11]


def printed(rng: random.Random) -> list[str]:
    """What ncu prints without --csv."""
    lines = ["==PROF== Connected to process 7 (/usr/bin/python3)", "step=000 loss=7.0313", "[7] python3@127.0.0.1"]
    for _ in range(rng.choice([1, 2])):
        lines.append(f"  {rng.choice(_KERNELS)} (2048, 2, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 9.0")
        section = ""
        rule = "    ----------------------- ------------- ------------"
        for where, name, unit, value in _METRICS:
            if where != section:
                section = where
                lines += [rule] * bool(section) + [
                    f"    Section: {where}",
                    rule,
                    "    Metric Name               Metric Unit Metric Value",
                    rule,
                ]
            lines.append(f"    {name:<35} {unit:>15} {value:>12}")
        lines += [rule, "    OPT   Est. Local Speedup: 25.06%", "          Words of a rule.", ""]
    return lines


def drawn_file(rng: random.Random) -> tuple[str, File, list[str]]:
    """A name, a file, and what was done to it."""
    make, name = rng.choice(
        [(details, "details.csv"), (details, "details.csv"), (raw, "raw.csv"), (raw, "raw.csv"), (printed, "ncu.txt")]
    )
    lines = make(rng)
    if rng.random() < 0.2:
        lines = ["==PROF== Connected to process 7", "loss, 1.0", *lines]
    done = cells.mutated(rng, lines)
    file = File(body=Lines(lines, encoding=rng.choice(["utf-8"] * 8 + ["latin-1", "utf-16"])))
    if rng.random() < 0.1:
        file.inner.append(damage.drawn(rng))
        done.append(file.inner[0].what)
    return name, file, done


_FORMATS = [[], ["-f", "json"], ["-v"], ["-f", "markdown"], ["-f", "json"]]


def drawn(rng: random.Random) -> Case:
    """One page and what is asked of it."""
    name, file, done = drawn_file(rng)
    asked = [["kernels", *rng.choice(_FORMATS), name] for _ in range(rng.choice([1, 1, 2]))]
    if rng.random() < 0.03:
        asked = [["triage", name]]
    return Case(kind="ncu", files={name: file}, commands=asked, done=done)
