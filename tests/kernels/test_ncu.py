"""What ncu writes, in every shape it writes it in, gives the same profiles; what it did not write is one line."""

from pathlib import Path

import pytest

from profkit.errors import ProfkitError, TraceError
from profkit.ingest.ncu.reader import find_ncu_sources, read_profiles
from profkit.ingest.ncu.text_page import rule_name
from profkit.ingest.ncu.values import measured_in, metric_for, number_in, scale_of, uses_decimal_comma, value_of
from profkit.kernels.speed import MEMORY_THROUGHPUT, SM_THROUGHPUT, ncu_title

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description",'
    '"Estimated Speedup Type","Estimated Speedup"'
)
HEAD = '"7","python3","host","void ns::k<(int)4>(float *, int)","1","7","(128, 1, 1)","(2048, 2, 1)","0","9.0"'
SOL = '"GPU Speed Of Light Throughput"'


def row(number, label, unit, value, section=SOL):
    return f'"{number}",{HEAD},{section},"{label}","{unit}","{value}",'


DETAILS = [
    HEADER,
    row(0, "Memory Throughput", "%", "61.84"),
    row(0, "Duration", "us", "1,234.50"),
    row(0, "Compute (SM) Throughput", "%", "1.30"),
    f'"0",{HEAD},"SpeedOfLight","","","","SOLBottleneck","OPT","Memory is more heavily utilized","",""',
    row(0, "Memory Throughput", "Gbyte/s", "196.46", '"Memory Workload Analysis"'),
    row(0, "Waves Per SM", "", "2.03", '"Launch Statistics"'),
    row(0, "Function Cache Configuration", "", "CachePreferNone", '"Launch Statistics"'),
    row(1, "Compute (SM) Throughput", "%", "n/a"),
    row(1, "Memory Throughput", "%", "(!) n/a"),
]
RAW = [
    (
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
        f'"Device","CC","gpu__time_duration.sum","{SM_THROUGHPUT}","{MEMORY_THROUGHPUT}","dram__bytes.sum.per_second",'
        '"launch__waves_per_multiprocessor","device__attribute_display_name"'
    ),
    '"","","","","","","","","","","","us","%","%","Gbyte/s","",""',
    f'"0",{HEAD},"1,234.50","1.30","61.84","196.46","2.03","NVIDIA H100"',
    f'"1",{HEAD},"nan","n/a","","","","NVIDIA H100"',
]
TEXT = """\
==PROF== Connected to process 7 (/usr/bin/python3)
step=000 loss=7.0313
[7] python3@127.0.0.1
  void ns::k<(int)4>(float *, int) (2048, 2, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ------------- ------------
    Metric Name               Metric Unit Metric Value
    ----------------------- ------------- ------------
    Memory Throughput                   %        61.84
    Duration                      usecond     1,234.50
    Compute (SM) Throughput             %         1.30
    ----------------------- ------------- ------------
    OPT   Memory is more heavily utilized than Compute: look
          at the next section.
    Section: Memory Workload Analysis
    ----------------- ------------ ------------
    Metric Name        Metric Unit Metric Value
    ----------------- ------------ ------------
    Memory Throughput Gbyte/second       196.46
    ----------------- ------------ ------------

    OPT   Est. Local Speedup: 25.06%
          Words of a rule.

    Section: Launch Statistics
    ------------ ------------- ------------
    Metric Name  Metric Unit   Metric Value
    ------------ ------------- ------------
    Waves Per SM                       2.03
    ------------ ------------- ------------
  other(float *) (1, 1, 1)x(64, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
"""
OLD_TEXT_NAN = """\
  void at::f<at::Add<float>>(int, at::Add<float>), 2021-Mar-04 12:00:01, Context 1, Stream 7
    Section: Command line profiler metrics
    ------------------------------------------------- --------------- ------------------------------
    gpu__time_duration.sum                                    usecond                          12.32
    sm__throughput.avg.pct_of_peak_sustained_elapsed                %                        (!) nan
    ------------------------------------------------- --------------- ------------------------------
"""
METRICS = {
    SM_THROUGHPUT: 1.3,
    MEMORY_THROUGHPUT: 61.84,
    "gpu__time_duration.sum": 1_234_500.0,
    "dram__bytes.sum.per_second": 196.46e9,
    "launch__waves_per_multiprocessor": 2.03,
}


def written(folder: Path, lines, *, encoding="utf-8") -> str:
    path = folder / "page.txt"
    path.write_bytes((lines if isinstance(lines, str) else "\n".join(lines)).encode(encoding))
    return str(path)


@pytest.mark.parametrize("lines", [DETAILS, RAW, TEXT], ids=["details", "raw", "text"])
def test_every_page_gives_the_same_launch(tmp_path, lines):
    first, second = read_profiles(written(tmp_path, lines)).profiles
    assert dict(first.metrics) == pytest.approx(METRICS)
    assert (first.function, first.grid, first.block) == ("k", (2048, 2, 1), (128, 1, 1))
    assert (first.device, first.compute_capability, first.process_id) == (0, "9.0", 7)
    assert not second.metrics


def test_a_rule_beside_another_stream_is_one_of_its_launch(tmp_path):
    """A launch is told by its ID within its process, and never doubles."""
    moved = [DETAILS[4].replace('"1","7","(128', '"3","13","(128'), *DETAILS[1:4], *DETAILS[5:]]
    first, second = read_profiles(written(tmp_path, [HEADER, *moved])).profiles
    assert (len(first.rules), len(second.rules)) == (1, 0)
    assert dict(first.metrics) == pytest.approx(METRICS)
    other = [line.replace('"7","python3"', '"8","python3"') for line in DETAILS[1:]]
    assert len(read_profiles(written(tmp_path, [*DETAILS, *other])).profiles) == 4


def test_what_ncu_says_of_itself_is_no_line_of_another(tmp_path):
    said = "==WARNING== Failed to detect compute capability, assuming 50"
    read = read_profiles(written(tmp_path, [HEADER, *(line for row in DETAILS[1:] for line in (said, row))]))
    assert (len(read.profiles), read.warnings) == (2, ())
    lines = TEXT.replace("          at the next section.", f"{said}\n          at the next section.")
    assert said not in read_profiles(written(tmp_path, lines)).profiles[0].rules[0].message


def test_pages_without_units_know_the_memory_throughput_by_its_section(tmp_path):
    """An ncu that is older than the report prints base units, and no names of them."""
    bare = [line.replace('"%"', '""').replace('"us","1,234.50"', '"","1234500"') for line in DETAILS]
    bare = [line.replace('"Gbyte/s","196.46"', '"","196460000000"') for line in bare]
    assert dict(read_profiles(written(tmp_path, bare)).profiles[0].metrics) == pytest.approx(METRICS)


@pytest.mark.parametrize("lines", [DETAILS, RAW, OLD_TEXT_NAN], ids=["details", "raw", "text"])
def test_what_a_failed_pass_left_is_known(tmp_path, lines):
    failed = read_profiles(written(tmp_path, lines)).profiles[-1]
    assert set(failed.unmeasured) & {SM_THROUGHPUT, MEMORY_THROUGHPUT}
    assert not set(failed.unmeasured) & set(failed.metrics)


@pytest.mark.parametrize(
    ("said", "scope"),
    [("Est. Speedup", "global"), ("Est. Local Speedup", "local"), ("Estimated Speedup", "")],  # the last one of 2022
)
def test_the_kind_of_an_estimate_on_the_text_page(tmp_path, said, scope):
    page = TEXT.replace("Est. Local Speedup", said)
    rule = read_profiles(written(tmp_path, page)).profiles[0].rules[1]
    assert (rule.speedup_fraction, rule.speedup_scope) == (pytest.approx(0.2506), scope)


def test_rules_keep_their_words_and_estimates(tmp_path):
    rules = read_profiles(written(tmp_path, TEXT)).profiles[0].rules
    assert [rule.id for rule in rules] == ["SOLBottleneck", "Memory Workload Analysis"]
    assert rules[0].message == "Memory is more heavily utilized than Compute: look at the next section."
    assert (rules[1].speedup_fraction, rules[1].speedup_scope, rules[1].message) == (
        pytest.approx(0.2506),
        "local",
        "Words of a rule.",
    )
    [csv_rule] = read_profiles(written(tmp_path, DETAILS)).profiles[0].rules
    assert (csv_rule.id, csv_rule.speedup_fraction) == ("SOLBottleneck", None)


def test_the_programs_own_output_between_the_rows_is_skipped_and_counted(tmp_path):
    noisy = ["==PROF== Connected to process 7", "loss, 1.0", *DETAILS[:4], 'He said: "stop', "", *DETAILS[4:], "bye"]
    read = read_profiles(written(tmp_path, noisy))
    assert dict(read.profiles[0].metrics) == pytest.approx(METRICS)
    assert "2 lines" in read.warnings[0]


def test_a_stray_quote_costs_its_own_line(tmp_path):
    read = read_profiles(written(tmp_path, [*DETAILS[:2], '"begun and never ended', *DETAILS[2:]]))
    assert dict(read.profiles[0].metrics) == pytest.approx(METRICS)


def test_two_runs_in_one_file_are_two_sets_of_launches(tmp_path):
    assert len(read_profiles(written(tmp_path, [*DETAILS, *DETAILS])).profiles) == 4
    assert len(read_profiles(written(tmp_path, [*RAW, *RAW])).profiles) == 4


def test_numbers_of_a_locale_with_decimal_comma(tmp_path):
    german = [
        line.replace("1,234.50", "1.234,50").replace("61.84", "61,84").replace("196.46", "196,46") for line in DETAILS
    ]
    german = [line.replace('"1.30"', '"1,30"').replace("2.03", "2,03") for line in german]
    assert dict(read_profiles(written(tmp_path, german)).profiles[0].metrics) == pytest.approx(METRICS)


def test_estimates_of_a_locale_with_decimal_comma(tmp_path):
    said = TEXT.replace("1,234.50", "1.234,50").replace("61.84", "61,84").replace("196.46", "196,46")
    said = said.replace("1.30", "1,30").replace("2.03", "2,03").replace("25.06%", "25,06%")
    profile = read_profiles(written(tmp_path, said)).profiles[0]
    assert dict(profile.metrics) == pytest.approx(METRICS)
    assert profile.rules[1].speedup_fraction == pytest.approx(0.2506)
    rule = DETAILS[4].rsplit(",", 2)[0] + ',"local","25,06"'
    german = [HEADER, DETAILS[1].replace("61.84", "61,84"), rule]
    [csv_rule] = read_profiles(written(tmp_path, german)).profiles[0].rules
    assert csv_rule.speedup_fraction == pytest.approx(0.2506)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_what_windows_redirected_is_read(tmp_path, encoding):
    assert dict(read_profiles(written(tmp_path, DETAILS, encoding=encoding)).profiles[0].metrics) == pytest.approx(
        METRICS
    )


OLD = """\
"ID","Process ID","thread Domain:Push/Pop_Range","Kernel Name","Kernel Time","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","","k","t","GPU Speed Of Light","SOL SM","%","70.00"
"0","7","","k","t","Command line profiler metrics","gpu__time_duration.sum","msecond","2"
"""  # noqa: E501
SUMMARY = """\
"Process ID","Kernel Name","Block Size","Grid Size","Device","CC","Invocations","Metric Name","Metric Unit","Minimum","Maximum","Average"
"7","k","(64, 1, 1)","(8, 1, 1)","0","9.0","12","Duration","us","1","3","2.50"
"""  # noqa: E501


def test_old_pages_without_sizes_and_summaries_with_averages(tmp_path):
    [profile] = read_profiles(written(tmp_path, OLD)).profiles
    assert (profile.grid, dict(profile.metrics)) == (None, {SM_THROUGHPUT: 70.0, "gpu__time_duration.sum": 2e6})
    [mean] = read_profiles(written(tmp_path, SUMMARY)).profiles
    assert (mean.n_launches, mean.metrics["gpu__time_duration.sum"]) == (12, 2500.0)


OLD_TEXT = """\
[3456] python3.7@127.0.0.1
  void at::f<at::Add<float>, at::Array<char*, int=3>>(int, at::Add<float>), 2021-Mar-04 12:00:01, Context 1, Stream 7
    Section: Command line profiler metrics
    ------------------------------------------------- --------------- ------------------------------
    gpu__time_duration.sum                                    usecond                          12.32
    sm__throughput.avg.pct_of_peak_sustained_elapsed                %                        (!) nan
    ------------------------------------------------- --------------- ------------------------------

  volta_sgemm_128x64_nn, 2021-Mar-04 12:00:02, Context 1, Stream 7
    Section: GPU Speed Of Light
    ------------------------------------------------- --------------- ------------------------------
    Memory [%]                                                      %                          40.10
    SM [%]                                                          %                          91.00
    ------------------------------------------------- --------------- ------------------------------
    OK    The kernel is utilizing greater than 80.0% of the available compute or memory performance of the device.
    WRN   Something else.
"""


def test_text_of_2021_with_names_of_metrics_and_without_sizes(tmp_path):
    first, second = read_profiles(written(tmp_path, OLD_TEXT)).profiles
    assert (first.function, dict(first.metrics)) == ("f", {"gpu__time_duration.sum": pytest.approx(12_320.0)})
    assert (second.grid, dict(second.metrics)) == (None, {MEMORY_THROUGHPUT: 40.1, SM_THROUGHPUT: 91.0})
    assert [rule.kind for rule in second.rules] == ["OK", "WRN"]
    assert ncu_title(second) == "High Throughput"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12,319,469", 12_319_469), ("4,963,609,951.19", 4_963_609_951.19), ("0.02", 0.02), ("1e+03", 1000),
        ("240; 240", 240), ("3 (1; 2)", 3), ("n/a", None), ("(!) n/a", None), ("nan", None), ("inf", None), ("", None),
        ("CachePreferNone", None), ("1\u202f234.5", 1234.5), ("-5", -5), ("9" * 400, None),
    ],
)  # fmt: skip
def test_numbers(text, value):
    assert number_in(text) == value


def test_a_percentage_of_a_peak_is_one_that_can_be():
    """A file may print any number; what passes measured a little above the peak stays."""
    said = {"100.4": 100.4, "0": 0.0, "1000": 1000.0, "1e12": None, "1001": None, "-1": None}
    assert {text: measured_in(text, "%", SM_THROUGHPUT) for text in said} == said
    assert measured_in("-1", "%", "sm__maximum_warps_per_active_cycle_pct") is None
    assert value_of(MEMORY_THROUGHPUT, 1e12) is None
    assert value_of("smsp__average_warps_issue_stalled_wait_per_issue_active.pct", 2400) == 2400  # 24 cycles an issue


def test_units_and_labels():
    scales = {"us": 1e3, "msecond": 1e6, "Gbyte/second": 1e9, "cycle/nsecond": 1e9, "Mhz": 1e6, "Kbyte/block": 1e3}
    assert {unit: scale_of(unit) for unit in scales} == scales
    assert scale_of("%") == scale_of("") == scale_of("register/thread") == 1
    assert metric_for("Memory Throughput", "%") == MEMORY_THROUGHPUT
    assert metric_for("Memory Throughput", "byte/s") == "dram__bytes.sum.per_second"
    assert metric_for("Duration (gpu__time_duration.sum)", "ns") == "gpu__time_duration.sum"
    assert metric_for("Stack Size", "") == ""
    assert not uses_decimal_comma(["12,319", "1"])
    assert not uses_decimal_comma([])
    assert uses_decimal_comma(["12,319", "61,84"])
    assert uses_decimal_comma(["1.234.567"])


HOSTILE = {
    "nothing": b"",
    "zeros": bytes(4096),
    "a zip": b"PK\x03\x04" + bytes(64),
    "half a report": b"NVR\0\xff\xff\xff\x7f",
    "a header alone": HEADER.encode(),
    "a raw header alone": RAW[0].encode(),
    "rows without a header": "\n".join(DETAILS[1:]).encode(),
    "one endless line": b"x" * (6 * 2**20),
    "endless cells": b'"ID","Kernel Name","Metric Name","Metric Value"\n"0","k","Duration","'
    + b"9" * (2 * 2**20)
    + b'"',
    "counters closed": b"==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU",
    "no kernels": b"==PROF== Connected to process 7\n==WARNING== No kernels were profiled.\n",
    "absurd sizes": f"  k ({'9' * 5000}, 1, 1)x(1, 1, 1), Context 1, Stream {'9' * 5000}\n".encode(),
}


def attempt(path: Path):
    try:
        return read_profiles(str(path)).profiles, None
    except ProfkitError as error:
        return (), error


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_one_line(tmp_path, content):
    for name in ("file.csv", "file.ncu-rep"):
        path = tmp_path / name
        path.write_bytes(content)
        profiles, refused = attempt(path)
        assert profiles or refused
        assert refused is None or ("\n" not in refused.message and name in refused.message)
        assert refused is None or refused.exit_code in {3, 4}
        assert all(not profile.metrics for profile in profiles)


def test_closed_counters_are_named(tmp_path):
    with pytest.raises(TraceError, match="ERR_NVGPUCTRPERM"):
        read_profiles(written(tmp_path, HOSTILE["counters closed"].decode()))


def test_folders_give_reports_before_pages(tmp_path):
    written(tmp_path, DETAILS)
    assert find_ncu_sources([str(tmp_path)]) == [str(tmp_path / "page.txt")]
    (tmp_path / "k.ncu-rep").write_bytes(b"NVR\0")
    assert find_ncu_sources([str(tmp_path)]) == [str(tmp_path / "k.ncu-rep")]


@pytest.mark.parametrize(
    ("section", "message", "name"),
    [
        ("GPU Speed Of Light Throughput", "This workload exhibits low compute throughput", "SOLBottleneck"),
        ("GPU Speed Of Light Roofline Chart", "The ratio of peak float (fp32)", "SOLFPRoofline"),
        ("Memory Workload Analysis Tables", "causes on average a 5.0 - way bank conflict", "SharedMemoryConflicts"),
        ("Memory Workload Analysis Tables", "The memory access pattern for local loads", "MemoryCacheAccessPattern"),
        ("Memory Workload Analysis Tables", "This workload accesses local memory (https", "LocalMemoryUsage"),
        ("Memory Workload Analysis Chart", "bytes sent to the L2 Compression unit", "MemoryL2Compression"),
        ("Warp State Statistics", "Instructions are executed in warps, which are groups of 32", "ThreadDivergence"),
        ("Warp State Statistics", "On average, each warp of this kernel spends 275.0 cycles", "CPIStall"),
        ("Occupancy", "The 8.00 theoretical warps per scheduler this kernel can issue", "TheoreticalOccupancy"),
        (
            "Occupancy",
            "This kernel's theoretical occupancy (33.3%) is limited by registers. The difference",
            "Occupancy",
        ),
        ("Occupancy", "The difference between calculated theoretical (100.0%) and measured", "AchievedOccupancy"),
        ("Source Counters", "This kernel has uncoalesced shared accesses", "UncoalescedSharedAccess"),
        ("A New Section", "Words.", "A New Section"),
    ],
)
def test_the_text_page_names_rules_as_the_report_does(section, message, name):
    assert rule_name(section, message) == name
