"""How many workers a loader is advised to have, where nobody knows how many cores there are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profkit.analyzers.input import InputWaits, judge, measure
from profkit.timeline import Facts
from tests.analyzers.test_findings import Job

US = 1000


def waiting() -> InputWaits:
    job = Job()
    for start in job.starts:
        job.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, start + 500, "user_annotation")
        job.work("gemm_bf16", start + 510, start + 990)
    found = measure(Facts.of(job.trace()))
    assert isinstance(found, InputWaits)
    return found


@pytest.mark.parametrize(
    ("waited_us", "fix"),
    [
        (500, "set num_workers=2 or more (fetching takes 1.00x as long as the rest of the step)"),
        (501, "set num_workers to the cores that training leaves free"),
        (7800, "set num_workers to the cores that training leaves free"),
    ],
)
def test_no_number_of_workers_that_the_machine_may_not_have_cores_for(waited_us: int, fix: str) -> None:
    found = waiting()
    scope = replace(found.scope, window_ns=1000 * US)
    (finding,) = judge(replace(found, scope=scope, idle_ns=500 * US, waited_ns=waited_us * US))
    assert finding.fix.startswith(fix)
    assert "pin_memory=True" in finding.fix
    if waited_us == 7800:
        assert "fetching takes 15.6x as long as the rest of the step" in finding.fix
        assert "num_workers=" not in finding.fix
