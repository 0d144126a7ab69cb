"""Batches that are mostly padding: counted by the capture, named where half of the positions are."""

from typing import Any

import pytest
import torch

from profkit.capture.inside.padding import Padding
from profkit.testing import operator, span
from tests.drawing import finding_in

MS = 1_000_000


def counted(*batches: Any) -> Any:
    padding = Padding()
    for batch in batches:
        padding.see(batch)
    return padding.told()


def rows(*lengths: int, to: int = 16) -> torch.Tensor:
    return torch.tensor([[7 + place for place in range(length)] + [0] * (to - length) for length in lengths])


def test_padding_is_counted_by_the_mask_or_by_the_ids() -> None:
    ids = rows(4, 8, 12)
    mask = (ids != 0).long()
    of_ids = counted(ids)
    assert (of_ids["n_padded"], of_ids["n_all"], of_ids["lengths"], of_ids["longest"]) == (24, 48, [16], 12)
    of_mask = counted({"input_ids": ids, "attention_mask": mask, "labels": torch.zeros(3, dtype=torch.long)})
    assert (of_mask["of"], of_mask["n_padded"]) == ("attention_mask", 24)
    assert counted((ids, torch.zeros(3)))["n_padded"] == 24


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(4, 16, dtype=torch.long),  # types of tokens: all the same
        rows(16, 16),  # full rows
        torch.tensor([[1, 0] * 8, [0, 1] * 7 + [0, 0]]),  # the last value stands inside rows as well
        torch.rand(4, 16),
        torch.zeros(4, 3, 16, dtype=torch.uint8),
        rows(2, 3, to=6),  # features
        {"a": object(), "b": [1, 2]},
        None,
    ],
)
def test_what_is_no_padding(batch: Any) -> None:
    assert counted(batch) is None


def found(told: Any) -> Any:
    """The finding on steps of 10 ms of which an operator has 8."""
    events = [span(f"ProfilerStep#{step}", step * 10 * MS, (step + 1) * 10 * MS) for step in range(8)]
    events += [operator("aten::mm", step * 10 * MS, step * 10 * MS + 8 * MS) for step in range(8)]
    return finding_in(events, "work.padding", profkit_padding=told)


TOLD = {"of": "attention_mask", "n_batches": 16, "n_padded": 750, "n_all": 1000, "lengths": [128], "longest": 40}


def test_a_secret_that_names_a_tensor_is_not_told() -> None:
    secret = "eyJhbGciOiJIUzI1NiJ9." + "a1B2" * 9 + "." + "c3D4" * 9
    told = counted({secret: rows(4, 8, 12)})
    assert (told["of"], told["n_batches"]) == ("[redacted]", 1)


def test_padding_costs_its_share_of_the_compute() -> None:
    one = found(TOLD)
    assert one.fraction == pytest.approx(0.6)
    assert one.title.startswith("75.0 % of the positions")
    assert "not to max_length" in one.fix
    assert "like length" in found({**TOLD, "lengths": [64, 128]}).fix


@pytest.mark.parametrize(
    "told",
    [None, 3, {**TOLD, "n_padded": 300}, {**TOLD, "n_all": 0}, {**TOLD, "n_padded": "9"}, {**TOLD, "longest": None}],
)
def test_little_padding_or_nothing_sound_is_no_finding(told: Any) -> None:
    assert found(told) is None
