"""A look at values in a step that is not timed: it finds subnormal numbers, and changes nothing."""

import sys
from itertools import islice

import pytest

torch = pytest.importorskip("torch")

from profkit.capture.inside import subnormal  # noqa: E402
from profkit.capture.inside.places.zero_rows import zero_share  # noqa: E402
from profkit.capture.inside.subnormal import Subnormals, flushes, held_subnormals  # noqa: E402

pytestmark = pytest.mark.torch

TINY, ROWS = 1e-40, (64, 32)


class Cell(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, at):
        return at * 2, [torch.full(ROWS, self.value)]


@pytest.fixture(autouse=True)
def all_looks(monkeypatch):
    monkeypatch.setattr(subnormal, "_SHARE", 1e9)


def seen(*modules, optimizer=None):
    looks = Subnormals()
    looks.begin()
    try:
        for one in modules:
            one(torch.ones(ROWS))
    finally:
        looks.end(optimizer)
    return looks.told()


def test_what_a_module_gives_is_looked_at():
    kinds = [{"of": "what Cell gives", "n_found": 1, "n_looks": 2}]
    assert seen(Cell(TINY)) == {"flushes": False, "kinds": kinds, "products": []}
    assert seen(Cell(-TINY)) is not None


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 1.2e-38, float("inf"), float("nan")])
def test_other_numbers_are_not_subnormal(value):
    assert seen(Cell(value)) is None


def looked_at(given, module=None):
    """What a step tells that gives a module this, which a function of the script holds."""
    looks = Subnormals()
    looks.begin()
    try:
        if module is not None:
            module(given)
    finally:
        looks.end()
    return looks.told()


@pytest.mark.parametrize("laid", [lambda given: given, torch.t])
def test_of_what_a_layer_takes_a_product_is_timed(laid):
    given = laid(torch.full((512, 512), TINY))
    with torch.no_grad():
        told = looked_at(given, torch.nn.Linear(512, 8))
    [one] = told["products"]
    assert (one["of"], one["shape"]) == ("what Linear takes", [512, 512])
    assert one["flop_per_s_of_zeros"] >= 2 * one["flop_per_s"] > 0
    del given  # the script holds it no more
    assert looked_at(torch.ones(512, 512), torch.nn.Linear(512, 8)) is None


def test_of_what_a_loop_keeps_a_product_is_timed(monkeypatch):
    monkeypatch.setattr(subnormal, "is_own_path", lambda file: file == __file__)
    told = looked_at(torch.full((512, 512), TINY))
    assert [one["of"] for one in told["products"]] == ["given"]


def test_a_mode_of_the_script_sees_nothing_of_it():
    from torch.overrides import TorchFunctionMode
    from torch.utils.flop_counter import FlopCounterMode

    class Calls(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    given = torch.full((512, 512), TINY)
    layer = torch.nn.Linear(512, 8)
    with torch.no_grad(), Calls() as alone:
        layer(given)
    with torch.no_grad(), Calls() as calls:
        told = looked_at(given, layer)
    assert calls.names == alone.names
    assert told["products"]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        told = looked_at(given, layer)
    assert counter.get_total_flops() == 2 * 512 * 512 * 8
    assert told["kinds"]


def test_looks_that_fail_take_their_share_of_the_step_as_well(monkeypatch):
    looks = Subnormals()
    looks.begin()
    monkeypatch.setattr(subnormal, "_is_plain", lambda _: 1 // 0)
    try:
        Cell(TINY)(torch.ones(ROWS))
        assert looks._spent_ns > 0
    finally:
        looks.end()


def test_a_module_is_not_asked_for_its_parameters():
    class Asked(torch.nn.Linear):
        def parameters(self, *, recurse=True):
            raise AssertionError

    with torch.no_grad():
        told = looked_at(torch.full((512, 512), TINY), Asked(512, 8))
    assert told["products"][0]["of"] == "what Asked takes"


def test_parameters_and_what_the_optimizer_keeps_are_looked_at():
    weight = torch.nn.Parameter(torch.ones(ROWS))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.full(ROWS, 1e-18)
    optimizer.step()
    told = seen(optimizer=optimizer)
    assert [one["of"] for one in told["kinds"]] == ["the optimizer's exp_avg_sq"]


def test_what_has_no_values_is_left_alone():
    class Odd(torch.nn.Module):
        def forward(self, at):
            return {"a": at}, torch.empty(ROWS, device="meta"), at.to_sparse(), at.t(), at.double(), None, at[:1]

    assert seen(Odd()) is None


def test_a_thread_that_takes_them_for_zero_says_so():
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot")
    try:
        assert flushes()
    finally:
        torch.set_flush_denormal(False)
    assert not flushes()


def test_no_hook_stays():
    from torch.nn.modules import module

    seen(Cell(1.0))
    assert not module._global_forward_hooks


def test_a_tensor_whose_storage_was_freed_is_not_read():
    """FSDP frees what other ranks hold: the views stay, and their address lies beyond any memory."""
    whole = torch.full(ROWS, TINY)
    view = whole[16:]
    whole.untyped_storage().resize_(0)
    looks = Subnormals()
    for one in (whole, view):
        assert subnormal.address_of(one, one.untyped_storage()) == 0
        looks._look("a parameter", one)
    assert looks.told() is None
    assert zero_share(whole) == zero_share(view) == 0
    part = torch.ones(ROWS)[16:, ::2]
    assert subnormal.address_of(part, part.untyped_storage()) == part.data_ptr() != 0


class Trace:
    def __init__(self, value):
        self.kept = {"trace": [torch.full(ROWS, value)]}
        self.cell = torch.nn.BatchNorm1d(2048)
        self.cell.running_var.fill_(value)
        self.itself = self


def held(holder):
    return held_subnormals(sys._getframe(), lambda file: file == __file__)


def test_what_functions_and_their_objects_hold_is_looked_at_with_its_name():
    found = held(Trace(TINY))
    assert found == {"holder.kept['trace']": 2048, "holder.cell.running_var": 2048}
    assert held(Trace(1.0)) == {}


def test_the_state_of_an_optimizer_that_an_object_holds_is_looked_at():
    weight = torch.nn.Parameter(torch.ones(ROWS))
    optimizer = torch.optim.SGD([weight])
    optimizer.state[weight]["trace"] = torch.full(ROWS, TINY)
    assert held([optimizer]) == {"the optimizer's trace": 2048}


def test_numbers_that_lie_anywhere_in_a_tensor_are_met():
    values = torch.zeros(96, 4096)
    values[2::3] = TINY
    assert 0.15 < held(values)["holder"] / values.numel() < 0.55


def test_lists_of_lists_take_no_time_and_hide_no_other_name():
    inner = [[[str(number) for number in range(64)] for _ in range(64)] for _ in range(64)]
    left = iter(range(100_000))
    assert list(subnormal._inside("inner", inner, bool, set(), islice(left, subnormal._MOST_OF_ONE))) == []
    assert next(left) == subnormal._MOST_OF_ONE
    weights = torch.full(ROWS, TINY)
    names = held_subnormals(sys._getframe(), lambda file: file == __file__)
    assert names == {"weights": weights.numel()}


def test_a_lazy_object_is_not_asked_for_its_class():
    class Lazy:
        @property
        def __class__(self):
            raise AssertionError

    assert held([Lazy(), torch.full(ROWS, TINY)]) == {"holder": 2048}
