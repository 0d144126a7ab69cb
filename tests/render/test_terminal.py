"""What a person sees: the verdict first, every line within the width, commands whole, names literal."""

import re
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from profkit.model.documents.report import Report
from profkit.render.terminal import triage as terminal
from profkit.shell import clean
from tests.render import reports

ANSI = re.compile(r"\x1b\[[0-9;]*m")
PERCENT = re.compile(r"([\d.]+) %")


def shown(report: Report, width: int = 80, **options: Any) -> str:
    return terminal.render(report, width=width, color=False, **options)


def lines_of(report: Report, width: int = 80, **options: Any) -> list[str]:
    """Give the lines that are not blank."""
    return [line for line in shown(report, width, **options).split("\n") if line.strip()]


OVERHEAD = """
   OVERHEAD-BOUND    confidence high
  the GPU waits for the host to launch work: 42.5 % of the window
  Step 41.2 ms (5 steps, varies by 2.0 %)
  At best 1.74x faster: a fix saves at most 17.5 ms per step

  where the step goes   NVIDIA H100 80GB HBM3
  ·····································▒▒▒▒▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▚▚█
  busy  53.9 %   · compute 49.1 %   ▒ exposed comm 4.2 %
                 ░ exposed copies 0.6 %
  idle  46.1 %   ▓ launch 42.5 %   ▚ sync 2.9 %   █ data 0.4 %   ? unknown 0.3 %

  why we think so
   1  3,264 operations (92.0 % of all) were launched while the GPU was idle;
      launch latency is 5 us
   2  the median kernel takes 3.10 us; 71.0 % of kernels take less time than
      their own launch call
   3  aten::mul, aten::add, aten::sigmoid: 58.0 % of launches, 9.0 % of GPU time
  also  the host waits for results in every step (small, 2.9 % of the window)
   4  2 blocking calls per step, 1.20 ms in which nothing is queued behind them

  what to do   torch.compile or CUDA graphs for the hot blocks; foreach or fused
               optimizer; larger batch
         then  log the loss every 100 steps, not every step
  prove it     Double the micro-batch. If the step grows by less than 10 %, the
               GPU was not the limit.

  next tool    nsys: what takes the host's time: Python, the dispatcher or the
               driver?
    COMMAND
    look for   the CPU row between CUDA API calls: Python frames, futex waits,
               or back-to-back API calls
  ruled out    data (0.4 %), exposed communication (4.2 %), exposed copies
               (0.6 %)

  also found   elementwise kernels take much of the GPU time (moderate, 6.1 %)

  caveats      - one run shows where time goes, not whether a change helps
               - 1 warning while reading: -v

  read         llama_rank0.json.gz, NVIDIA H100 80GB HBM3, torch 2.9.1,
               81,204 events
  more         profkit explain host.launch_bound   -v   -f json   -o report.html
"""


def test_the_standard_report_reads_like_this() -> None:
    assert shown(reports.overhead()) == OVERHEAD.replace("COMMAND", reports.NSYS.command)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("overhead", "OVERHEAD-BOUND    confidence high"),
        ("data_bound_cpu", "DATA-BOUND    confidence high"),
        ("inconclusive", "INCONCLUSIVE"),
        ("healthy", "HEALTHY (kernel-bound)    confidence high"),
        ("two_ranks", "OVERHEAD-BOUND    confidence high, rank 1"),
        ("failure_only", "INCONCLUSIVE"),
    ],
)
def test_the_verdict_comes_first(name: str, first: str) -> None:
    assert lines_of(reports.ALL[name])[0].strip() == first


def test_verdict_and_meaning_share_a_line_where_they_fit() -> None:
    first = lines_of(reports.overhead(), 110)[0]
    meaning = "the GPU waits for the host to launch work: 42.5 % of the window"
    assert first == f"   OVERHEAD-BOUND   {meaning}    confidence high"


def test_inconclusive_says_why_and_how_to_capture_again_before_all_else() -> None:
    lines = lines_of(reports.inconclusive())
    assert [line.strip() for line in lines[:5]] == [
        "INCONCLUSIVE",
        "this trace does not allow a verdict: 94.7 % of 3,264 kernel launches have no",
        "kernel in the trace",
        "next tool    torch.profiler: record a longer trace of steady steps",
        "profkit explain capture.quality",
    ]
    assert "confidence" not in shown(reports.inconclusive())
    assert "what was recorded" in shown(reports.inconclusive())


def test_healthy_promises_nothing() -> None:
    text = shown(reports.healthy())
    assert "94.9 % of the window is compute; matrix products are 85.6 % of kernel time" in text
    assert "At best" not in text
    assert "A fix saves" not in text
    assert "healthy:" not in text


def test_two_ranks_stand_in_one_table_and_the_failed_one_is_named() -> None:
    text = shown(reports.two_ranks())
    assert (
        "  2 ranks, each over its own window; comm and copies: the exposed part\n"
        "  rank     step  compute    comm  copies    idle  most idle\n"
        "  0     41.2 ms   55.3 %  43.7 %   0.0 %   1.0 %  launch 1.0 %\n"
        "  1     41.2 ms   49.1 %   4.2 %   0.6 %  46.1 %  launch 42.5 %\n"
    ) in text
    assert "not read     - runs/llama_rank2.json.gz ends inside event 81,204" in text


def test_many_ranks_are_cut_but_never_the_one_spoken_of() -> None:
    first, spoken = reports.two_ranks().ranks
    many = [replace(first, rank=place, source=f"r{place}") for place in range(40)]
    report = replace(reports.two_ranks(), ranks=(*many, replace(spoken, rank=99)))
    report = replace(report, verdict=replace(report.verdict, rank=99))
    text = shown(report)
    assert "  and 24 more: -v\n" in text
    assert re.search(r"^  99 +41.2 ms +49.1 %", text, re.MULTILINE)
    assert "  39    41.2 ms" in shown(report, verbose=True)


def test_two_devices_are_compared_and_the_busier_one_is_drawn() -> None:
    text = shown(reports.two_devices())
    assert "where the step goes   device 1, NVIDIA H100 80GB HBM3" in text
    assert "  0        24.3 %  0.0 %   0.0 %  75.7 %  dependency 72.8 %\n" in text
    assert "  1        57.5 %  0.0 %   0.0 %  42.5 %  launch 42.5 %\n" in text


def test_without_steps_nothing_is_per_step() -> None:
    report = reports.no_steps()
    first = report.findings[0]
    other = replace(first, id="host.stall", evidence=(replace(first.evidence[0], statement="one long gap"),))
    report = replace(report, findings=(*report.findings, other))
    text = shown(report)
    assert "Window 206 ms, no steps found. A fix saves at most 17.5 ms\n" in text
    assert "where the window goes" in text
    assert " per step\n" not in shown(report, verbose=True)
    assert "- saves at most 17.5 ms\n" in shown(report, verbose=True)


def test_a_cpu_trace_says_that_dispatch_is_an_estimate() -> None:
    text = shown(reports.data_bound_cpu())
    assert "rest  97.4 %   █ data 93.1 %   # between operators 2.9 %" in text
    assert "▓ dispatch (estimated) 1.4 %" in text
    assert "idle" not in text


@pytest.mark.parametrize("report", reports.ALL.values(), ids=reports.ALL)
@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_longer_than_the_width_but_commands(report: Report, width: int, verbose: bool) -> None:
    command = "    " + clean(report.verdict.next_tool.command).rstrip()
    lines = shown(report, width, verbose=verbose).split("\n")
    assert command in lines
    long = [line for line in lines if cell_len(line) > width and line != command]
    # what to paste next stands alone on its line
    assert [line for line in long if not re.fullmatch(r"(?:  more +| +)profkit (?:explain|where) \S+", line)] == []
    assert [line for line in lines if line != line.rstrip()] == []


def test_wide_characters_count_as_two_columns() -> None:
    report = reports.overhead()
    wide = replace(report, verdict=replace(report.verdict, headline="核心" * 60, source="核" * 90))
    for width in (60, 80):
        long = [line for line in shown(wide, width).split("\n") if cell_len(line) > width]
        assert long == ["    " + reports.NSYS.command]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_bar_fills_the_width(width: int) -> None:
    bar = next(line for line in lines_of(reports.overhead(), width) if line.startswith("  ··"))
    assert len(bar) == width - 2


@pytest.mark.parametrize("report", [report for report in reports.ALL.values() if report.ranks])
@pytest.mark.parametrize("width", [60, 200])
def test_the_legend_adds_up_to_100(report: Report, width: int) -> None:
    lines = lines_of(report, width)
    start = next(place for place, line in enumerate(lines) if line.startswith("  busy"))
    legend = "\n".join(lines[start:]).split("\n  why")[0].split("\n  what")[0].split("\n  next")[0]
    sums = [tenths(match) for match in re.findall(r"^  (?:busy|idle|rest) +([\d.]+) %", legend, re.MULTILINE)]
    assert sum(sums) == 1000
    assert sum(tenths(value) for value in PERCENT.findall(legend)) == 2000  # the parts, and their two sums


def tenths(percent: str) -> int:
    return round(10 * float(percent))


def test_glyphs_of_the_bar_are_those_of_the_legend() -> None:
    lines = lines_of(reports.overhead())
    bar = next(line for line in lines if line.startswith("  ··"))
    legend = " ".join(lines)
    assert set(bar.strip()) <= set(
        re.findall(r"(\S) (?:compute|exposed \w+|launch|sync|data|unknown) [\d.]+ %", legend)
    )


@pytest.mark.parametrize("report", reports.ALL.values(), ids=reports.ALL)
@pytest.mark.parametrize("verbose", [False, True])
def test_colour_changes_no_character(report: Report, verbose: bool) -> None:
    colored = terminal.render(report, width=80, color=True, verbose=verbose)
    assert "\x1b[" in colored
    assert ANSI.sub("", colored) == shown(report, verbose=verbose)
    assert "\x1b" not in shown(report, verbose=verbose)


@pytest.mark.parametrize(
    ("variables", "is_terminal", "is_colored"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1", "COLORTERM": "truecolor"}, False, False),
    ],
)
def test_colour_follows_the_terminal(
    variables: dict[str, str], is_terminal: bool, is_colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert ("\x1b" in terminal.render(reports.overhead(), width=80)) is is_colored


def test_no_color_loses_to_an_explicit_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" in terminal.render(reports.overhead(), width=80, color=True)


def test_the_width_is_the_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "97")
    assert terminal.render(reports.overhead(), color=False) == shown(reports.overhead(), 97)


@pytest.mark.parametrize("verbose", [False, True])
def test_hostile_names_are_printed_literally(verbose: bool) -> None:
    text = shown(reports.hostile(), 200, verbose=verbose)
    assert "[bold red]x[/] <script>alert(1)</script> |`*_a_*`|" in text
    assert "python 'train.py  rm ``` [bold red]x[/]" in text
    assert [char for char in text if not char.isprintable() and char != "\n"] == []


def test_verbose_adds_tables_checks_findings_warnings_and_gaps() -> None:
    report = reports.overhead()
    text = shown(report, 100, verbose=True)
    assert "  ok     launches.lost: 0.0 % of 16,320 kernel launches have no kernel\n" in text
    assert (
        "  top kernels\n"
        "  kernel                                          family       count    total   share\n"
        "  vectorized_elementwise_kernel<CUDAFunctor_add>  elementwise  9,480  12.0 ms  58.0 %\n"
    ) in text
    assert "Times are sums over the window.\n" in text
    assert "  kernel.unfused: elementwise kernels take much of the GPU time (moderate, 6.1 % of the window)\n" in text
    assert "    - 12 events of an unknown category were ignored\n" in text
    assert "    - memory: no memory events\n      -> profile_memory=True\n" in text
    for line in ("top kernels", "12 events", "no memory events", "launches.lost"):
        assert line not in shown(report)


def test_verbose_shows_all_evidence_and_what_was_expected() -> None:
    text = shown(reports.overhead(), 120, verbose=True)
    assert "   5  aten::item from the loss: 10 of 10 (expected < 5.0 %)\n" in text
    assert "aten::item" not in shown(reports.overhead(), 120)


def test_a_table_that_repeats_the_checks_is_left_out() -> None:
    report = reports.overhead()
    rows = tuple((check.id, "ok", check.message) for check in reports.OK_CHECKS)
    table = replace(
        reports.KERNELS.tables[0], title="checks", headers=("check", "", "seen"), units=("text",) * 3, rows=rows
    )
    section = replace(reports.KERNELS, tables=(table, reports.KERNELS.tables[0]))
    text = shown(replace(report, ranks=(replace(report.ranks[0], sections=(section,)),)), verbose=True)
    assert text.count("launches.lost") == 1
    assert "top kernels" in text


def test_failing_checks_are_shown_by_default() -> None:
    report = reports.inconclusive()
    text = shown(replace(report, verdict=replace(report.verdict, headline="no verdict")))
    assert "caveats      - 94.7 % of 3,264 kernel launches have" in text
