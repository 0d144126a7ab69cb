"""ncu's profiles of two sides: which kernels are the same, whether they are faster, and what is said of it."""

import json

import jsonschema
import pytest

from profkit.cli import group
from profkit.compare.kernels import CLOCK, CYCLES, DRAM_CLOCK, DRAM_THROUGHPUT, SAME, SM_CLOCK, compare_kernels
from profkit.errors import UsageError
from profkit.model.kernel import KernelProfile
from profkit.model.names import function_name
from profkit.render.json.compare_kernels import render
from profkit.render.schema import schema
from profkit.render.terminal import compare_kernels as terminal

DURATION = "gpu__time_duration.sum"


def launch(name="void k<float>(float *)", us=10.0, *, grid=8, device="NVIDIA H100", cc="9.0", **metrics):
    named = {"sm_clock": SM_CLOCK, "dram_clock": DRAM_CLOCK, "cycles": CYCLES, "dram": DRAM_THROUGHPUT}
    given = {SM_CLOCK: 1.5e9, **{named.get(key, key): value for key, value in metrics.items()}}
    return KernelProfile(
        source="s", number=0, name=name, function=function_name(name), grid=(grid, 1, 1), block=(64, 1, 1),
        device_name=device, compute_capability=cc, metrics={DURATION: 1000.0 * us, **given} if us else given,
    )  # fmt: skip


def compared(before, after):
    report = compare_kernels(before, after, sources=(["a"], ["b"]))
    jsonschema.Draft202012Validator(schema("compare_kernels")).validate(json.loads(render(report)))
    return report


def one(before, after):
    [kernel] = compared(before, after).kernels
    return kernel


@pytest.mark.parametrize(
    ("us", "answer"), [(5.0, "faster"), (9.6, "same"), (10.4, "same"), (10.6, "slower"), (None, "not-comparable")]
)
def test_a_kernel_is_faster_slower_or_the_same(us, answer):
    kernel = one([launch()], [launch(us=us)])
    assert kernel.answer == answer
    assert kernel.matched_by == "name"
    if us:
        assert kernel.change == pytest.approx(us / 10 - 1)


def test_launches_of_which_one_has_no_duration_are_not_compared():
    """Their median would be that of other launches: here of the short one alone."""
    kernel = one([launch(us=12.0), launch(us=8.0)], [launch(us=None), launch(us=8.0)])
    assert (kernel.answer, kernel.change) == ("not-comparable", None)
    assert "not every launch has a duration (gpu__time_duration.sum)" in kernel.caveats


@pytest.mark.parametrize("us", [0.0, 1e-303, 1e-4])
def test_what_no_launch_takes_is_not_compared(us):
    before = launch(us=us, **{"dram__bytes_read.sum": 5e-324})
    assert one([before], [launch(**{"dram__bytes_read.sum": 1e18})]).change is None


def test_launches_are_paired_in_their_order():
    before, after = [launch(us=10), launch(us=100)], [launch(us=8), launch(us=80)]
    assert (one(before, after).answer, round(one(before, after).change, 3)) == ("faster", -0.2)
    assert one(before, [launch(us=8), launch(us=120)]).answer == "unclear"


def test_of_unequal_numbers_of_launches_ranges_that_overlap_are_unclear():
    before = [launch(us=10), launch(us=12), launch(us=11)]
    assert one(before, [launch(us=9), launch(us=13)]).answer == "unclear"
    assert one(before, [launch(us=5), launch(us=6)]).answer == "faster"


def test_names_of_other_versions_of_ncu_are_the_same_kernel():
    old = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::AddFunctor>(int, T2)"
    new = "void vectorized_elementwise_kernel<4, AddFunctor>(int, T2)"
    assert one([launch(old)], [launch(new)]).matched_by == "name"


def test_another_launch_size_is_the_same_kernel_with_a_caveat():
    kernel = one([launch(grid=8), launch("void other()")], [launch(grid=4, us=5), launch("void third()")])
    assert (kernel.matched_by, kernel.answer) == ("function-alone", "faster")
    assert "same work" in kernel.caveats[0]


def test_two_candidates_are_none():
    before = [launch("void e<Add>()"), launch("void e<Mul>()")]
    report = compared(before, [launch("void e<Sub>()"), launch("void e<Div>()")])
    assert not report.kernels
    assert (len(report.only_before), len(report.only_after)) == (2, 2)
    assert "NO KERNEL IN COMMON" in terminal.render(report, width=80, color=False)


def test_a_single_kernel_on_each_side_is_compared_with_a_caveat():
    kernel = one([launch("void mine_v1()")], [launch("void mine_v2()", us=5)])
    assert (kernel.matched_by, kernel.answer) == ("alone", "faster")
    assert "names differ" in kernel.caveats[0]


def test_other_devices_are_not_compared():
    kernel = one([launch()], [launch(us=5, device="NVIDIA A100", cc="8.0")])
    assert (kernel.answer, kernel.change) == ("not-comparable", None)
    assert "different devices" in kernel.caveats[0]


def test_another_sm_clock_is_compared_by_cycles():
    before, after = launch(us=10, sm_clock=1e9, cycles=10_000), launch(us=5, sm_clock=2e9, cycles=10_000)
    kernel = one([before], [after])
    assert (kernel.answer, kernel.measure, kernel.change) == ("same", "cycles", 0)
    assert "1 GHz before and 2 GHz after" in kernel.caveats[0]
    assert one([launch(sm_clock=1e9)], [launch(us=5, sm_clock=2e9)]).answer == "not-comparable"
    near = 1e9 * (1 + CLOCK / 2)
    assert one([launch(sm_clock=1e9)], [launch(us=5, sm_clock=near)]).measure == "duration"


def test_a_kernel_that_waits_for_dram_follows_the_clock_of_dram():
    busy = {"dram": 85.0, "cycles": 10_000}
    before = launch(us=10, sm_clock=1e9, dram_clock=2e9, **busy)
    kernel = one([before], [launch(us=7, sm_clock=2e9, dram_clock=2e9, **busy)])
    assert (kernel.answer, kernel.measure) == ("faster", "duration")
    assert one([before], [launch(us=7, sm_clock=1e9, dram_clock=1e9, **busy)]).answer == "not-comparable"


def test_unknown_clocks_are_a_caveat():
    bare = launch()
    bare = KernelProfile(source="s", number=0, name="k", function="k", metrics={DURATION: 10.0})
    assert "clock" in compared([bare], [bare]).warnings[0]
    assert compared([launch()], [launch()]).warnings == ()


def test_what_moved_is_told_and_what_did_not_is_kept():
    registers, hits = "launch__registers_per_thread", "lts__t_sector_hit_rate.pct"
    kernel = one([launch(**{registers: 64.0, hits: 50.0})], [launch(us=5, **{registers: 32.0, hits: 51.0})])
    moved = {item.metric: item.has_moved for item in kernel.metrics}
    assert moved == {SM_CLOCK: False, registers: True, hits: False}


def test_the_kernel_that_changed_most_comes_first_and_answers_are_counted():
    before = [launch("void a()", us=10), launch("void b()", us=100), launch("void c()", us=50)]
    after = [launch("void a()", us=5), launch("void b()", us=150), launch("void c()", us=50)]
    report = compared(before, after)
    assert [kernel.function for kernel in report.kernels] == ["b", "a", "c"]
    shown = " ".join(terminal.render(report, width=100, color=False).split())
    assert "MIXED 3 kernels: 1 faster, 1 slower, 1 same" in shown
    assert "160 us before, 205 us after (+28.1 %)" in shown
    assert SAME < 0.1


# -------------------------------------------------------------------------------------------------------- the command

HEADER = '"ID","Kernel Name","Block Size","Grid Size","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'


def page(path, us, name="k"):
    row = f'"0","{name}","(64, 1, 1)","(8, 1, 1)","9.0","GPU Speed Of Light Throughput"'
    path.write_text(HEADER + f'{row},"Duration","usecond","{us}"\n{row},"SM Frequency","cycle/nsecond","1.5"\n')
    return str(path)


def test_the_command_compares_pages_and_folders(tmp_path, capsys):
    a, b = page(tmp_path / "a.csv", 10), page(tmp_path / "b.csv", 5)
    assert group.main(["compare", a, b, "-f", "json"], standalone_mode=False) == 0
    [kernel] = json.loads(capsys.readouterr().out)["kernels"]
    assert (kernel["answer"], kernel["change"]) == ("faster", -0.5)
    for side, us in (("before", 10), ("after", 12)):
        (tmp_path / side).mkdir()
        page(tmp_path / side / "p.csv", us)
    folders = [str(tmp_path / "before"), str(tmp_path / "after")]
    assert group.main(["compare", *folders, "-f", "markdown"], standalone_mode=False) == 0
    assert "slower" in capsys.readouterr().out
    assert group.main(["compare", *folders, "--fail-on-regression", "10%"], standalone_mode=False) == 1
    assert group.main(["compare", *folders, "--fail-on-regression", "50%"], standalone_mode=False) == 0
    assert "k +20.0 %" in capsys.readouterr().err


def test_profiles_are_compared_with_profiles_only(tmp_path):
    a = page(tmp_path / "a.csv", 10)
    other = tmp_path / "trace.json"
    other.write_text('{"traceEvents": []}')
    with pytest.raises(UsageError, match="an ncu report and a trace"):
        group.main(["compare", a, str(other)], standalone_mode=False)
    with pytest.raises(UsageError, match="is one side"):
        group.main(["compare", a], standalone_mode=False)
    with pytest.raises(UsageError, match="names a column"):
        group.main(["compare", a, a, "--metric", "x"], standalone_mode=False)
