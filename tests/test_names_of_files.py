"""Names of files as reports have them: as short as tells them apart."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import profkit
from profkit.cli.compare import compared
from profkit.plain import told_apart
from profkit.render.words.compare import read_names
from profkit.render.words.triage import origin, rank_labels
from tests.conftest import ROOT

TRACES = ROOT / "traces"
PATHS = st.lists(
    st.lists(st.sampled_from(["", "a", "b", "rank0.json"]), min_size=1, max_size=5).map("/".join), max_size=8
)


@given(PATHS)
def test_a_name_is_the_shortest_end_that_no_other_path_has(paths):
    paths = [path.rstrip("/") or path for path in paths]
    names = told_apart(paths)
    assert len(set(names)) == len(set(paths))
    for path, name in zip(paths, names, strict=True):
        parts, shown = path.split("/"), name.split("/")
        assert parts[-len(shown) :] == shown
        shorter = shown[1:]
        assert not shorter or any(other != path and other.split("/")[-len(shorter) :] == shorter for other in paths), (
            "a folder that tells nothing"
        )


def test_known_names():
    assert told_apart(["/x/a/rank0.json", "/x/b/rank0.json", "/x/b/rank1.json"]) == (
        "a/rank0.json",
        "b/rank0.json",
        "rank1.json",
    )
    assert told_apart(["r/1/c/rank0.json", "r/2/c/rank0.json"]) == ("1/c/rank0.json", "2/c/rank0.json")
    assert told_apart(["rank0.json", "rank0.json"]) == ("rank0.json", "rank0.json")
    assert told_apart(["s3://b/run1/", "s3://c/run1"]) == ("b/run1", "c/run1")
    assert told_apart([]) == ()


def test_runs_whose_files_have_one_name_are_told_apart_in_reports():
    before, after = (
        [str(TRACES / name / "rank0.pt.trace.json.gz") for name in names]
        for names in (("ddp_strong_ws1", "ddp_weak_ws1"), ("ddp_strong_ws2",))
    )
    comparison = compared(before, after, margin=0.02, metric=None, lenient=False)
    assert read_names(comparison) == (
        "ddp_strong_ws1/rank0.pt.trace.json.gz, ddp_weak_ws1/rank0.pt.trace.json.gz",
        "ddp_strong_ws2/rank0.pt.trace.json.gz",
    )
    report = profkit.triage([*before, *after])
    assert rank_labels(report.ranks)[1] == ("ddp_strong_ws1/…", "ddp_weak_ws1/ra…", "ddp_strong_ws2/…")
    assert origin(report, report.ranks[0]).startswith("ddp_strong_ws1/rank0.pt.trace.json.gz")


def test_folders_of_runs_are_told_apart_too():
    folders = [str(TRACES / name) for name in ("ddp_strong_ws2", "ddp_weak_ws2", "ddp_weak_ws1")]
    comparison = compared(folders[:1], folders[1:], margin=0.02, metric=None, lenient=False)
    assert read_names(comparison) == (
        "2 traces in ddp_strong_ws2",
        "2 traces in ddp_weak_ws2, ddp_weak_ws1/rank0.pt.trace.json.gz",
    )


def test_processes_of_one_file_have_numbers():
    rank = profkit.triage(TRACES / "data_cpu.pt.trace.json.gz").ranks[0]
    ranks = [replace(rank, source="job.sqlite"), replace(rank, source="job.sqlite")]
    assert rank_labels(ranks) == ("trace", ("1 job", "2 job"))
