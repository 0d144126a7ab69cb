"""Delays on a device, with a CUDA that is none: what is launched, when, and how long it spins."""

import pytest

torch = pytest.importorskip("torch")

from profkit.capture.inside.probe import device  # noqa: E402
from profkit.capture.inside.probe.device import CollectiveWatch, Spinner  # noqa: E402
from profkit.capture.inside.probe.plan import Plan  # noqa: E402
from profkit.capture.inside.probe.prober import Prober  # noqa: E402
from profkit.capture.options import Options  # noqa: E402

pytestmark = pytest.mark.torch


class Event:
    """An event of a device whose clock runs at 2 GHz."""

    cycles = 0
    is_done = True

    def __init__(self):
        self.at = Event.cycles

    def query(self):
        return Event.is_done

    def elapsed_time(self, other):
        return (other.at - self.at) / 2e6


@pytest.fixture
def spun(monkeypatch):
    """The cycles of each spin, on a device that is not there."""
    launched = []

    def sleep(cycles):
        launched.append(cycles)
        Event.cycles += cycles

    monkeypatch.setattr(torch.cuda, "_sleep", sleep)
    monkeypatch.setattr(device.clock, "recorded_event", Event)
    monkeypatch.setattr(device.clock, "is_capturing_graph", lambda: False)
    monkeypatch.setattr(Event, "is_done", True)
    return launched


def test_a_spin_lasts_as_long_as_it_should(spun):
    spinner = Spinner()
    assert spinner.spin(1_000_000) == 0  # nothing is known of the clock yet
    assert not spun
    spinner.calibrate()
    spinner.calibrate()
    assert len(spun) == 1
    assert spinner.is_ready
    assert spinner.spin(1_000_000) == 1_000_000
    assert spun[1] == pytest.approx(2_000_000)


def test_the_host_never_waits_for_the_clock(spun, monkeypatch):
    spinner = Spinner()
    spinner.calibrate()
    monkeypatch.setattr(Event, "is_done", False)
    assert not spinner.is_ready
    assert spinner.spin(1_000_000) == 0
    monkeypatch.setattr(Event, "is_done", True)
    assert spinner.is_ready


def test_nothing_spins_into_a_graph(spun, monkeypatch):
    spinner = Spinner()
    spinner.calibrate()
    monkeypatch.setattr(device.clock, "is_capturing_graph", lambda: True)
    assert spinner.is_ready
    assert spinner.spin(1_000_000) == 0


def test_only_collectives_on_a_stream_of_their_own_are_told(monkeypatch):
    stream, told, called = ["compute"], [], []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream[0])
    monkeypatch.setattr(torch.cuda, "default_stream", lambda: "compute")
    monkeypatch.setattr(torch.distributed, "all_gather_into_tensor", lambda *_: called.append(1), raising=False)
    original = torch.distributed.all_gather_into_tensor
    watch = CollectiveWatch()
    watch.begin(lambda: told.append(1))
    torch.distributed.all_gather_into_tensor(1, 2)
    assert not told
    stream[0] = "gather"
    torch.distributed.all_gather_into_tensor(1, 2)
    assert told == [1]
    assert called == [1, 1]
    watch.end()
    assert torch.distributed.all_gather_into_tensor is original


class Spun:
    """A spinner that notes what it is asked for."""

    def __init__(self):
        self.asked = []

    def spin(self, delay_ns):
        self.asked.append(delay_ns)
        return delay_ns


def test_each_device_place_is_delayed_where_it_is(tmp_path):
    plan = Plan(places=("device", "copy", "comm"), doses_ns=(5, 9), n_steps=40, seed=0, cost=0.05, step_ns=100)
    prober = Prober(Options(folder=str(tmp_path), probe={"places": []}))
    prober._plan, prober.stage, prober._spinner = plan, "probe", Spun()
    comes_by = {
        "device": lambda: prober.phase_ended("data_loader"),
        "copy": lambda: prober.phase_began("h2d"),
        "comm": prober._collective_begins,
    }
    for place, come_by in comes_by.items():
        prober._due, prober._spinner.asked = (place, 1), []
        for other in comes_by.keys() - {place}:
            comes_by[other]()
        assert not prober._spinner.asked, place
        come_by()
        come_by()
        assert prober._spinner.asked == [9], "once in a step"
        assert prober._delayed_ns == 9
