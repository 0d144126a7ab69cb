"""Lines of operators written as signs: the mode that shows them leaves the script's own modes as they are."""

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode, _len_torch_function_stack  # noqa: E402

from profkit.capture.inside.places.operators import SignLines  # noqa: E402

pytestmark = pytest.mark.torch


def told(monkeypatch, *, counters=None, seen=()):
    """What the compiler says that it has compiled."""
    monkeypatch.setitem(sys.modules, "torch._dynamo", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters=counters or {}))
    frames = SimpleNamespace(input_codes=SimpleNamespace(seen=list(seen)))
    monkeypatch.setitem(sys.modules, "torch._dynamo.convert_frame", frames)


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    told(monkeypatch)
    assert _len_torch_function_stack() == 0
    yield
    assert _len_torch_function_stack() == 0


class Doubles(TorchFunctionMode):
    """A mode of the script's own."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) * 2


def test_it_passes_every_call_on():
    lines = SignLines()
    lines.begin()
    assert _len_torch_function_stack() == 1
    assert float(torch.ones(()) * 3 + 1) == 4
    lines.end()


def test_it_stays_away_where_the_script_has_a_mode():
    lines = SignLines()
    with Doubles():
        lines.begin()
        assert _len_torch_function_stack() == 1
        lines.end()
        assert _len_torch_function_stack() == 1


def test_a_mode_that_the_script_puts_on_later_works_on_after_it():
    lines = SignLines()
    one = torch.ones(())
    lines.begin()
    with Doubles():
        lines.end()
        assert _len_torch_function_stack() == 1
        doubled = torch.add(one, one)
    assert doubled.tolist() == 4
    assert torch.add(one, one).tolist() == 2


@pytest.mark.parametrize(
    "compiled",
    [{"counters": {"stats": {"unique_graphs": 1}}}, {"counters": {"stats": {}}, "seen": ["code"]}],
    ids=["counted", "seen"],
)
def test_it_stays_away_where_a_function_was_compiled(monkeypatch, compiled):
    told(monkeypatch, **compiled)
    lines = SignLines()
    lines.begin()
    assert _len_torch_function_stack() == 0


def test_it_stays_away_where_the_compiler_cannot_be_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._dynamo.convert_frame", SimpleNamespace())
    lines = SignLines()
    lines.begin()
    assert _len_torch_function_stack() == 0


def test_it_ends_once_and_without_a_beginning():
    lines = SignLines()
    lines.end()
    lines.begin()
    lines.end()
    lines.end()
