"""ncu's text page (what it prints to a terminal) to profiles; it names the section of a rule, and not the rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from profkit.ingest.ncu.values import OWN_WORDS, Cell, measured, metric_for, number_in, share_of, uses_decimal_comma
from profkit.model.kernel import KernelProfile, Rule
from profkit.model.names import function_name

_RULES: Final = (
    ("GPU Speed Of Light Roofline", "", "SOLFPRoofline"),
    ("GPU Speed Of Light", "", "SOLBottleneck"),
    ("Compute Workload Analysis", "slow pipeline", "SlowPipeLimiter"),
    ("Compute Workload Analysis", "", "HighPipeUtilization"),
    ("Memory Workload Analysis", "bank conflict", "SharedMemoryConflicts"),
    ("Memory Workload Analysis", "L2 Compression", "MemoryL2Compression"),
    ("Memory Workload Analysis", "gcomp", "MemoryL2Compression"),
    ("Memory Workload Analysis", "accesses local memory", "LocalMemoryUsage"),
    ("Memory Workload Analysis", "memory backs", "MemoryApertureUsage"),
    ("Memory Workload Analysis", "access", "MemoryCacheAccessPattern"),
    ("Scheduler Statistics", "", "IssueSlotUtilization"),
    ("Warp State Statistics", "executed in warps", "ThreadDivergence"),
    ("Warp State Statistics", "", "CPIStall"),
    ("Instruction Statistics", "", "FPInstructions"),
    ("Launch Statistics", "", "LaunchConfiguration"),
    ("Occupancy", "theoretical warps per scheduler", "TheoreticalOccupancy"),
    ("Occupancy", "kernel's theoretical occupancy", "Occupancy"),
    ("Occupancy", "The difference between", "AchievedOccupancy"),
    ("GPU and Memory Workload Distribution", "", "WorkloadImbalance"),
    ("Source Counters", "uncoalesced global", "UncoalescedGlobalAccess"),
    ("Source Counters", "uncoalesced shared", "UncoalescedSharedAccess"),
    ("Source Counters", "threads executed per cycle", "ThreadDivergence"),
    ("Source Counters", "amples", "PCSamplingData"),
)
"""How the section begins, words of the message, and the rule, after ncu's own `sections/*.py`; the first that fits."""


def rule_name(section: str, message: str) -> str:
    """The identifier of a rule; the section where it is not known."""
    return next((name for begins, said, name in _RULES if section.startswith(begins) and said in message), section)


_DIM: Final = r"\((\d{1,12}), *(\d{1,12}), *(\d{1,12})\)"
_HEADER: Final = re.compile(
    rf"^ {{1,4}}(?P<name>\S.*?)(?: {_DIM}x{_DIM})?(?:, \d{{4}}-\w{{3}}-\d\d [\d:]+)?"
    r", Context \d+, Stream \d+"
    r"(?:, Device (?P<device>\d{1,9}))?(?:, CC (?P<cc>[\d.]+))?(?:, Invocations (?P<n>\d{1,12}))?\s*$"
)
_PROCESS: Final = re.compile(r"^\[(\d{1,12})\] \S")
_DASHES: Final = re.compile(r"-{3,}(?: +-{3,})+")
_RULE: Final = re.compile(r"^ {4}(?P<kind>OPT|INF|WRN|ERR|OK) {2,4}(?P<text>\S.*)$")
_SPEEDUP: Final = re.compile(r"^Est(?P<old>imated)?\.? (?P<local>Local )?Speedup: (?P<percent>[\d.,]+)%\s*")
_MAX_RULE_LINES: Final = 61  # with its section and its kind


class _Open(msgspec.Struct):
    """A launch while its lines are read; values stay text until it is known how numbers are written."""

    head: re.Match[str]
    process_id: int | None
    cells: list[Cell] = msgspec.field(default_factory=list)
    rules: list[list[str]] = msgspec.field(default_factory=list)
    """The section that each stands in, its kind, and its lines."""
    section: str = ""


def read_text(lines: Iterable[str], source: str) -> list[KernelProfile]:
    """The launches of a text page in its order; [] where there is none."""
    launches = list(_launches(lines))
    comma = uses_decimal_comma(value for launch in launches for _, _, value in launch.cells)
    return [_profile(launch, number, source, comma=comma) for number, launch in enumerate(launches)]


def _launches(lines: Iterable[str]) -> Iterator[_Open]:
    launch: _Open | None = None
    process_id: int | None = None
    columns: list[tuple[int, int]] = []
    in_rule = False
    for line in lines:
        process = _PROCESS.match(line)
        head = _HEADER.match(line) if ", Context " in line else None
        if process is not None or head is not None:
            if launch is not None:
                yield launch
            launch, columns, in_rule = None, [], False
            process_id = int(process[1]) if process is not None else process_id
            launch = _Open(head=head, process_id=process_id) if head is not None else None
        elif launch is not None and not OWN_WORDS.match(line):
            text = line.strip()
            rule = _RULE.match(line)
            if text.startswith("Section: "):
                launch.section, columns, in_rule = text.removeprefix("Section: "), [], False
            elif _DASHES.fullmatch(text):
                columns, in_rule = [match.span() for match in re.finditer(r"-+", line)], False
            elif rule is not None:
                launch.rules.append([launch.section, rule["kind"], rule["text"]])
                in_rule = True
            elif in_rule and text and len(launch.rules[-1]) < _MAX_RULE_LINES:
                launch.rules[-1].append(text)
            elif columns and text and not text.startswith("Metric Name"):
                launch.cells.append(_cell(line, columns, launch.section))
    if launch is not None:
        yield launch


def _cell(line: str, columns: list[tuple[int, int]], section: str) -> Cell:
    """A metric with its unit and value; a summary has minimum, maximum and average, of which the last counts."""
    label = line[: columns[0][1]].strip()
    unit = line[columns[0][1] : columns[1][1]].strip()
    value = line[columns[-2][1] :].strip() if len(columns) > 2 else ""
    return metric_for(label, unit, section), unit, value


def _profile(launch: _Open, number: int, source: str, *, comma: bool) -> KernelProfile:
    head = launch.head
    found = measured(launch.cells, has_decimal_comma=comma)
    sizes = [int(text) if text is not None else 0 for text in head.groups()[1:7]]
    has_sizes = head.groups()[1] is not None
    return KernelProfile(
        source=source,
        number=number,
        name=head["name"],
        function=function_name(head["name"]),
        grid=(sizes[0], sizes[1], sizes[2]) if has_sizes else None,
        block=(sizes[3], sizes[4], sizes[5]) if has_sizes else None,
        process_id=launch.process_id,
        device=int(head["device"]) if head["device"] else None,
        compute_capability=head["cc"] or "",
        n_launches=int(head["n"]) if head["n"] else 1,
        metrics=found.metrics,
        unmeasured=tuple(found.unmeasured),
        rules=tuple(_rule(rule, comma=comma) for rule in launch.rules),
    )


def _rule(parts: list[str], *, comma: bool) -> Rule:
    section, kind, *lines = parts
    text = " ".join(line.strip() for line in lines)
    speedup = _SPEEDUP.match(text)
    name = rule_name(section, text)
    if speedup is None:
        return Rule(id=name, kind=kind, message=text)
    percent = number_in(speedup["percent"], has_decimal_comma=comma)
    return Rule(
        id=name,
        kind=kind,
        message=text[speedup.end() :],
        speedup_fraction=share_of(percent),
        # "Estimated" is of 2022, when one word stood for both kinds.
        speedup_scope="local" if speedup["local"] else "" if speedup["old"] else "global",
    )
