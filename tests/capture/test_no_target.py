"""Rows without a target: marked where a loss leaves many out, and neither values nor gradients change."""

import re

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812
from torch.profiler import profile  # noqa: E402

from profkit.analyzers.patterns.marked_rows import _NO_TARGET_MARK  # noqa: E402
from profkit.capture.inside.places.no_target import NO_TARGET, share_without  # noqa: E402
from profkit.capture.inside.places.operators import SignLines  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, LENGTH, WIDTH, CLASSES = 16, 64, 16, 128
FEW = (torch.arange(ROWS * LENGTH) % 8 == 0).view(ROWS, LENGTH)
TARGET = torch.arange(ROWS * LENGTH).view(ROWS, LENGTH) % CLASSES


def run(loss_of, *, classes=CLASSES, watched=True, **how):
    """The marks of one backward pass, what they are called without node numbers, and the gradients that it gives."""
    torch.manual_seed(0)
    head, hidden = torch.nn.Linear(WIDTH, classes), torch.randn(ROWS, LENGTH, WIDTH)
    lines = SignLines()
    with profile() as recorded:
        if watched:
            lines.begin(**how)
        try:
            loss_of(head, hidden).backward()
        finally:
            lines.end()
    marks = [event.name for event in recorded.events() if event.name.startswith(NO_TARGET)]
    return marks, [one.grad for one in head.parameters()]


def few(target, ignored=-100):
    return torch.where(FEW, target, ignored)


def flat(head, hidden):
    return F.cross_entropy(head(hidden).flatten(0, 1), few(TARGET).flatten())


def turned(head, hidden):
    return torch.nn.CrossEntropyLoss(ignore_index=0)(head(hidden).transpose(1, 2), few(TARGET, 0))


def smoothed(head, hidden):
    return F.cross_entropy(head(hidden).flatten(0, 1), few(TARGET).flatten(), label_smoothing=0.1)


def shifted(head, hidden):
    """As a causal model does, the last of each row has no next one."""
    logits, target = head(hidden)[:, :-1].contiguous(), few(TARGET)[:, 1:]
    return F.cross_entropy(logits.view(-1, CLASSES), target.reshape(-1))


def in_two(head, hidden):
    return F.nll_loss(F.log_softmax(head(hidden).view(-1, CLASSES), -1), few(TARGET).view(-1))


def full(head, hidden):
    return F.cross_entropy(head(hidden).flatten(0, 1), TARGET.flatten())


def most(head, hidden):
    return F.cross_entropy(head(hidden).flatten(0, 1), torch.where(FEW, -100, TARGET).flatten())


def read_elsewhere(head, hidden):
    logits = head(hidden).flatten(0, 1)
    return F.cross_entropy(logits, few(TARGET).flatten()) + logits.square().mean()


def chosen_before(head, hidden):
    return F.cross_entropy(head(hidden[FEW]), TARGET[FEW])


def few_classes(head, hidden):
    return F.cross_entropy(head(hidden).flatten(0, 1), few(TARGET % 32).flatten())


@pytest.mark.parametrize("loss_of", [flat, turned, smoothed, shifted, in_two])
def test_an_output_layer_and_its_loss_are_marked(loss_of):
    marks, _ = run(loss_of)
    assert len(marks) >= 3
    assert all(84 <= int(_NO_TARGET_MARK.search(one)[2]) <= 91 for one in marks)


def test_it_is_cheap_enough_for_steps_whose_stacks_are_sampled():
    assert run(flat, is_sampled=True)[0]


@pytest.mark.parametrize("loss_of", [full, most, read_elsewhere, chosen_before])
def test_rows_that_count_are_not(loss_of):
    assert run(loss_of)[0] == []


def test_a_loss_of_few_classes_is_left_out():
    assert run(few_classes, classes=32)[0] == []


@pytest.mark.parametrize("loss_of", [flat, turned, read_elsewhere])
def test_gradients_are_the_same_to_the_last_bit(loss_of):
    watched, alone = run(loss_of)[1], run(loss_of, watched=False)[1]
    assert all(torch.equal(one, other) for one, other in zip(watched, alone, strict=True))


def test_targets_are_read_where_they_lie():
    target = few(TARGET)
    assert share_without(target, -100) == pytest.approx(0.875, abs=0.03)
    assert share_without(target.t()[::2], -100) == pytest.approx(0.75, abs=0.03)
    for other in (target.float(), target.int(), None, target[:0]):
        assert share_without(other, -100) == 0.0


def test_both_sides_call_it_the_same():
    assert re.match(_NO_TARGET_MARK.pattern, f"{NO_TARGET}17, 75 %")
