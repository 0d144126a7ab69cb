"""Lines of operators written as signs: the mode that shows them leaves the script's own modes as they are."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode, _len_torch_function_stack  # noqa: E402

from profkit.capture.inside.places.operators import SignLines  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters={}))
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


def test_it_stays_away_where_a_function_was_compiled(monkeypatch):
    told = SimpleNamespace(counters={"frames": {"total": 1}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", told)
    lines = SignLines()
    lines.begin()
    assert _len_torch_function_stack() == 0


def test_it_ends_once_and_without_a_beginning():
    lines = SignLines()
    lines.end()
    lines.begin()
    lines.end()
    lines.end()
