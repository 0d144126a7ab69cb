"""Real reports of ncu, where there are any: every form of one says the same, and advice follows ncu's own estimates."""

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from profkit.cli import group
from profkit.errors import TraceFormatError
from profkit.ingest.ncu.reader import read_profiles
from profkit.ingest.ncu.rep_file import is_cut_short
from profkit.kernels.assess import BIG_CLAIM, assess
from profkit.kernels.claims import GLOBAL, Launch, issue_slots, largest, of_time, of_warps, told
from profkit.model.kernel import KernelProfile, Topic
from tests.conftest import SHARED_TRACES

SHARED = SHARED_TRACES.parent
REPORTS = sorted([*(SHARED / "ncu").glob("*.ncu-rep"), *(SHARED / "field" / "ncu").glob("*.ncu-rep")])
PAGES = [
    path
    for path in (
        SHARED / "ncu" / "details_csv_rules_T4_cc7.5.csv",
        SHARED / "ncu" / "details_csv_rules_GB200_cc10.0.log",
        SHARED / "ncu" / "text_basic_torch_A100_cc8.0.txt",
        SHARED / "seeds" / "blog_kernel_ncu.txt",
    )
    if path.exists()
]
PRINTED: dict[str, Callable[[Path], list[str]]] = {
    "details": lambda report: ["--import", str(report), "--page", "details", "--csv"],
    "all details": lambda report: [
        *("--import", str(report), "--page", "details", "--csv"),
        *("--print-details", "all", "--print-metric-name", "label-name"),
    ],
    "raw": lambda report: ["--import", str(report), "--page", "raw", "--csv"],
    "raw in base units": lambda report: [*("--import", str(report), "--page", "raw", "--csv", "--print-units", "base")],
    "text": lambda report: ["--import", str(report), "--page", "details"],
}
pytestmark = pytest.mark.shared


@cache
def profiles(path: Path) -> tuple[KernelProfile, ...]:
    if path.suffix == ".ncu-rep":
        pytest.importorskip("ncu_report")
    return read_profiles(str(path)).profiles


def said(profile: KernelProfile) -> tuple[str, str, Topic | None]:
    one = assess(profile)
    return profile.function, one.speed.kernel_class.value, one.advice[0].topic if one.advice else None


def _words(profile: KernelProfile) -> set[str]:
    """The messages of the rules without blanks, at which pages break lines."""
    return {"".join(rule.message.split()) for rule in profile.rules if rule.message}


# ------------------------------------------------------------------------------------------------ one report, each form


@pytest.fixture(scope="module")
def ncu() -> str:
    return shutil.which("ncu") or pytest.skip("no ncu on PATH, which prints the pages of a report")


@pytest.mark.parametrize("form", PRINTED)
@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_what_ncu_prints_of_a_report_says_what_the_report_says(report: Path, form: str, ncu: str, tmp_path: Path):
    done = subprocess.run([ncu, *PRINTED[form](report)], check=True, capture_output=True)
    page = tmp_path / "page.txt"
    page.write_bytes(done.stdout)
    read, whole = read_profiles(str(page)), profiles(report)
    assert [said(profile) for profile in read.profiles] == [said(profile) for profile in whole]
    for printed, known in zip(read.profiles, whole, strict=True):
        shared = printed.metrics.keys() & known.metrics.keys()
        assert len(shared) > 15
        for name in shared:  # two decimals, of numbers above some 0.01
            assert printed.metrics[name] == pytest.approx(known.metrics[name], rel=6e-3, abs=6e-3), name
        if printed.rules:
            assert {rule.id for rule in printed.rules} <= {rule.id for rule in known.rules}
            assert [(one.topic, one.estimate.rule, one.estimate.scope) for one in told(printed.rules)] == [
                (one.topic, one.estimate.rule, one.estimate.scope) for one in told(known.rules)
            ]
            assert all(any(whole.endswith(said) for whole in _words(known)) for said in _words(printed))  # no titles


# --------------------------------------------------------------------------------------------------------- the .ncu-rep


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_the_kind_of_an_estimate_is_a_word(report: Path):
    """NVIDIA's module has it as a number."""
    rules = [rule for profile in profiles(report) for rule in profile.rules]
    assert rules
    assert {rule.speedup_scope for rule in rules if rule.speedup_fraction is not None} <= {"local", "global"}
    assert {rule.speedup_scope for rule in rules if rule.speedup_fraction is None} <= {""}
    assert {rule.kind for rule in rules} <= {"", "INF", "OPT", "WRN", "ERR"}


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_a_report_cut_short_is_damaged_and_none_is_empty(report: Path, tmp_path: Path):
    data = report.read_bytes()
    assert not is_cut_short(report)
    cut = tmp_path / "cut.ncu-rep"
    for length in {4, 8, 12, *range(13, len(data), len(data) // 50), len(data) - 10, len(data) - 1}:
        cut.write_bytes(data[:length])
        assert is_cut_short(cut), length
    with pytest.raises(TraceFormatError, match="is cut short"):
        read_profiles(str(cut))


@pytest.mark.parametrize("report", REPORTS[:1], ids=lambda path: path.stem)
def test_the_command_reads_a_report(report: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("ncu_report")
    assert group.main(["kernels", str(report), "-f", "json"], standalone_mode=False) == 0
    [first, *_] = json.loads(capsys.readouterr().out)["kernels"]
    assert first["advice"][0]["topic"] in set(Topic)
    assert first["n_unmeasured"] == 0


# ------------------------------------------------------------------------------------------------- formulas and ranking


def computed(profile: KernelProfile) -> dict[Topic, float]:
    """What the formulas make of the metrics alone, the largest of each topic."""
    launch = Launch.of(profile)
    launch = replace(launch, speed=replace(launch.speed, is_near_roof=False))  # rules look past a full level
    slots = issue_slots(launch) or 0.0
    warps = ((topic, min(share, slots)) for topic, share in of_warps(launch))
    found: dict[Topic, float] = {}
    for topic, share in (*of_time(launch), *warps):
        found[topic] = max(found.get(topic, 0.0), share)
    return found


def test_the_formulas_give_what_the_rules_gave():
    """Of reports whose rules are those of the formulas, to the digits of a float."""
    compared: list[Topic] = []
    for profile in (profile for report in REPORTS for profile in profiles(report)):
        own = computed(profile)
        for topic in Topic:
            of_rules = [one.estimate for one in told(profile.rules) if one.topic is topic]
            estimate = next((one for one in of_rules if one.scope == GLOBAL), None)
            if estimate is not None and estimate.rule != "Occupancy":  # another formula, until 2023
                assert own[topic] == pytest.approx(estimate.fraction, rel=1e-9), (profile.function, topic)
                compared.append(topic)
    if not compared:
        pytest.skip("no reports with estimates beside this checkout")
    assert {Topic.ACCESS, Topic.STALL, Topic.ACHIEVED, Topic.FUSING} <= set(compared)


NOT_FIRST = {
    ("gemm", Topic.OCCUPANCY): "memory is at 68.5 % of its peak",
    ("cutlass3x_sm100_tensorop_s64x256x32gemm", Topic.TAIL): "the last of 1.89 waves leaves only 5.5 %",
    ("vectorized_elementwise_kernel", Topic.TAIL): "memory is at 85.1 % of its peak, so that only less work helps",
}
"""Launches whose first advice is not on ncu's largest estimate of their time, and why: what the report says."""
ANSWERED = {
    ("matrix_addition2D", Topic.STALL): Topic.ROOF,  # it waits for DRAM, which is full
    ("reduce_kernel", Topic.ACHIEVED): Topic.GRID,  # too few warps, for lack of blocks
}
"""Those whose first advice is on what makes ncu's largest estimate."""


def test_first_advice_follows_ncus_largest_estimate_of_the_time():
    seen: dict[str, int] = {"same": 0, "answered": 0, "not first": 0}
    for path in (*REPORTS, *PAGES):
        for profile in profiles(path):
            top, one = largest(profile), assess(profile)
            if top is None:  # in 2022 ncu printed one word for estimates of the time and of a part of the device
                top = next((told_ for told_ in told(profile.rules) if not told_.estimate.scope), None)
            if top is None or top.estimate.fraction < BIG_CLAIM:
                continue
            topic, first = top.topic, one.advice[0]
            reasons = [item for item in one.evidence if "it is not first" in item.statement]
            if first.topic is topic:
                seen["same"] += 1
                assert not reasons
            elif (profile.function, topic) in ANSWERED:
                seen["answered"] += 1
                assert first.topic is ANSWERED[profile.function, topic]
                assert first.estimate is not None
                assert not reasons
            else:
                seen["not first"] += 1
                [reason] = reasons
                assert NOT_FIRST[profile.function.partition("_f8_")[0], topic] in reason.statement
                assert reason.value == pytest.approx(100 * top.estimate.fraction)
    if not any(seen.values()):
        pytest.skip("no real profiles beside this checkout")
    assert seen["same"] >= 18 or not REPORTS
    assert seen["not first"] <= len(NOT_FIRST)


def test_advice_on_real_launches():
    """First advice where a person has read the report: excess sectors, bank conflicts, too few blocks, a full DRAM."""
    read = {
        "mlp_v4_T4": [Topic.ACCESS], "mlp_v1_T4": [Topic.ROOF], "cutlass_report80": [Topic.GRID],
        "gemm_v9_alter_RTX3080": [Topic.BANKS, Topic.ROOF], "mojo_small": [Topic.GRID] * 4,
    }  # fmt: skip
    found = {report.stem: [said(profile)[2] for profile in profiles(report)] for report in REPORTS}
    assert {stem: topics for stem, topics in found.items() if stem in read} == {
        stem: topics for stem, topics in read.items() if stem in found
    }
