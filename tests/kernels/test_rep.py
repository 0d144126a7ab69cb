"""`.ncu-rep` files through NVIDIA's module and a stand-in of it; test_real_reports.py has real ones."""

from types import SimpleNamespace

import pytest

from profkit.errors import MissingCapabilityError, TraceError
from profkit.ingest.ncu.reader import read_profiles
from profkit.ingest.ncu.rep_file import is_cut_short, profiles_of
from profkit.kernels.speed import MEMORY_THROUGHPUT, SM_THROUGHPUT


def _metric(value):
    return SimpleNamespace(value=lambda: value)


class Action:
    """Stands for an action of the ncu_report module; test_real_reports.py has those of real files."""

    NameBase_DEMANGLED = 1
    VALUES = {  # noqa: RUF012
        SM_THROUGHPUT: 12.5,
        MEMORY_THROUGHPUT: float("nan"),
        "launch__grid_dim_x": 4.0, "launch__grid_dim_y": 1.0, "launch__grid_dim_z": 1.0,
        "launch__block_dim_x": 32.0, "launch__block_dim_y": 1.0, "launch__block_dim_z": 1.0,
        "device__attribute_display_name": "NVIDIA H100",
        "device__attribute_compute_capability_major": 9, "device__attribute_compute_capability_minor": 0,
        "nvlink__destination_ports": None,
    }  # fmt: skip

    def name(self, base):
        return "void ns::k<(int)4>(float *)" if base == self.NameBase_DEMANGLED else "k"

    def metric_names(self):
        return tuple(self.VALUES)

    def metric_by_name(self, name):
        return _metric(self.VALUES[name])

    def rule_results_as_dicts(self):
        return [
            {
                "rule_identifier": "SOLBottleneck",
                "rule_message": {"title": "Latency Issue", "message": "This workload waits", "type": 2},
            },
            {
                "rule_identifier": "UncoalescedGlobalAccess",
                "rule_message": {"title": "", "message": "This kernel has uncoalesced global accesses", "type": 2},
                "speedup_estimation": {"type": 2, "speedup": 40.0},
            },
            {
                "rule_identifier": "IssueSlotUtilization",
                "rule_message": {"title": "", "message": "Every scheduler", "type": 2},
                "speedup_estimation": {"type": 1, "speedup": 11.6},
            },
        ]  # fmt: skip


def test_links_in_a_message_are_as_ncu_prints_them():
    rule = Action().rule_results_as_dicts()[1]
    rule["rule_message"]["message"] = (
        "Look at @section:SourceCounters:Source Counters@. The @url:CUDA Guide:https://docs.nvidia.com/a.html#b@ has"
        " more, and @source:k.cu:12:line 12@. Mail a@b."
    )
    action = SimpleNamespace(rule_results_as_dicts=lambda: [rule])
    for name in ("NameBase_DEMANGLED", "name", "metric_names", "metric_by_name"):
        setattr(action, name, getattr(Action(), name))
    group = SimpleNamespace(num_actions=lambda: 1, action_by_idx=lambda _: action)
    context = SimpleNamespace(num_ranges=lambda: 1, range_by_idx=lambda _: group)
    [profile] = profiles_of(SimpleNamespace(load_report=lambda _: context), "k.ncu-rep", "k.ncu-rep")
    assert profile.rules[0].message == (
        "Look at Source Counters. The CUDA Guide (https://docs.nvidia.com/a.html#b) has more, and line 12. Mail a@b."
    )


def test_a_report_through_nvidias_module():
    group = SimpleNamespace(num_actions=lambda: 1, action_by_idx=lambda _: Action())
    context = SimpleNamespace(num_ranges=lambda: 1, range_by_idx=lambda _: group)
    [profile] = profiles_of(SimpleNamespace(load_report=lambda _: context), "k.ncu-rep", "k.ncu-rep")
    assert (profile.function, profile.grid, profile.block) == ("k", (4, 1, 1), (32, 1, 1))
    assert (profile.device_name, profile.compute_capability) == ("NVIDIA H100", "9.0")
    assert MEMORY_THROUGHPUT not in profile.metrics  # NaN is no number
    assert profile.unmeasured == (MEMORY_THROUGHPUT,)
    assert [(rule.kind, rule.speedup_fraction, rule.speedup_scope) for rule in profile.rules] == [
        ("OPT", None, ""),
        ("OPT", pytest.approx(0.4), "global"),
        ("OPT", pytest.approx(0.116), "local"),
    ]


class CutShort(Action):
    """What NVIDIA's module gives for a launch that a report cut short does not hold any more."""

    VALUES = {}  # noqa: RUF012

    def name(self, base):
        return None


def test_a_report_cut_short_is_not_a_shorter_one():
    actions = [Action(), CutShort()]
    group = SimpleNamespace(num_actions=lambda: 2, action_by_idx=lambda place: actions[place])
    context = SimpleNamespace(num_ranges=lambda: 1, range_by_idx=lambda _: group)
    with pytest.raises(ValueError, match="launch 1 of 2"):
        profiles_of(SimpleNamespace(load_report=lambda _: context), "k.ncu-rep", "k.ncu-rep")


def test_nothing_beside_the_report_is_imported(tmp_path, monkeypatch):
    installed, here = tmp_path / "site", tmp_path / "here"
    for folder, text in ((installed, READERS["reads nothing"]), (here, "open('ran', 'w')\n")):
        folder.mkdir()
        (folder / "ncu_report.py").write_text(text)
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    (here / "msgspec.py").write_text("open('ran', 'w')\n")
    (here / "k.ncu-rep").write_bytes(WHOLE)
    monkeypatch.chdir(here)
    with pytest.raises(TraceError, match="holds no profiled kernel"):
        read_profiles("k.ncu-rep")
    assert not (here / "ran").exists()


WHOLE = b"NVR\0\x02\0\0\0\x08\x07" + b"\x02\0\0\0\x28\x03" + b"abc"
"""A report without launches: the header of the file, then a block with three bytes."""


@pytest.mark.parametrize("length", [*range(4, 10), *range(11, len(WHOLE))])
def test_a_report_that_ends_within_a_block_is_cut_short(tmp_path, length):
    path = tmp_path / "k.ncu-rep"
    path.write_bytes(WHOLE)
    assert not is_cut_short(path)
    path.write_bytes(WHOLE[:length])
    assert is_cut_short(path)
    with pytest.raises(TraceError, match="is cut short"):
        read_profiles(str(path))


READERS = {
    "reads nothing": "class _None:\n num_ranges = lambda self: 0\nload_report = lambda path: _None()\n",
    "raises": "def load_report(path): raise RuntimeError('two\\nlines')\n",
    "ends the process": "import os\nload_report = lambda path: os.abort()\n",
}


@pytest.mark.parametrize("text", READERS.values(), ids=READERS)
def test_whatever_the_native_reader_does_to_its_process_is_one_line_of_ours(tmp_path, monkeypatch, text):
    (tmp_path / "ncu_report.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = tmp_path / "k.ncu-rep"
    path.write_bytes(WHOLE)
    with pytest.raises(TraceError, match=r"k\.ncu-rep") as caught:
        read_profiles(str(path))
    assert "\n" not in caught.value.message


def test_without_the_module_one_line_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.ingest.ncu.rep_file.find_spec", lambda _: None)
    path = tmp_path / "k.ncu-rep"
    path.write_bytes(WHOLE)
    with pytest.raises(MissingCapabilityError) as caught:
        read_profiles(str(path))
    assert "pip install ncu-report" in caught.value.hint
