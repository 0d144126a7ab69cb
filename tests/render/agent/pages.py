"""What an agent's page says: its facts, each with the id behind which the JSON has it."""

import re
from collections.abc import Iterator
from typing import Any, Final

ID: Final = r"\[((?:verdict|ranks|findings|joint_findings|window_ns|subjects|modules|phase_ns|fleet|handover|skipped|failures|judgement|configurations|baseline|candidate|waterfall|compute|comm|readings)\b[\w.\[\]]*)\](?= |$|;|:)"  # noqa: E501
_PAIR: Final = re.compile(r"(\w+)=(\S+)")
_STEP: Final = re.compile(r"(\w+)|\[(\d+)\]")


def at(document: Any, path: str) -> Any:
    """The value behind an id, as jq finds it; of a piece of evidence its number. Raises KeyError, IndexError."""
    value = document
    for name, place in _STEP.findall(path):
        value = value[name] if name else value[int(place)]
    return value["value"] if isinstance(value, dict) and "statement" in value else value


def ids(page: str) -> list[str]:
    """All ids of a page below its first line."""
    return [found for line in page.splitlines()[1:] for found in re.findall(ID, line)]


def facts(page: str) -> Iterator[tuple[str, str, str]]:
    """Label, value and id of each fact: `step = 37823307 ns [verdict.step_ns]`."""
    for line in page.splitlines()[1:]:
        found = re.match(rf"\s*(.*?) = (\S+)(?: [^\[\]]*?)? {ID}", line)
        if found:
            yield found[1], found[2], found[3]


def rows(page: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Label, keys with their values, and id of each row: `rank 3 [fleet.rows[3]]: step_ns=68600000 data_ns=0`."""
    for line in page.splitlines()[1:]:
        found = re.match(rf"\s*(.*?) {ID}: ((?:\w+=\S+ ?)+)", line)
        if found:
            yield found[1], dict(_PAIR.findall(found[3])), found[2]
