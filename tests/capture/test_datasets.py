"""Whose code makes the batches of a DataLoader."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset  # noqa: E402

from profkit.capture.inside.places.datasets import made_by  # noqa: E402

pytestmark = pytest.mark.torch


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.zeros(1)

    def __getattr__(self, name):
        raise RuntimeError(f"nobody asks for {name}")


def pad(rows, to):
    return torch.stack(rows)


def made(dataset, **options):
    return made_by(iter(DataLoader(dataset, batch_size=2, **options)))


def test_the_code_behind_a_loader_is_found_through_what_wraps_it():
    line = Rows.__getitem__.__code__.co_firstlineno
    reading = {"name": "Rows.__getitem__", "file": made(Rows())["dataset"]["file"], "line": line}
    assert reading["file"].endswith("capture/test_datasets.py")
    assert made(Rows()) == {"n_workers": 0, "dataset": reading}
    collating = {"name": "pad", "file": reading["file"], "line": pad.__code__.co_firstlineno}
    found = made(Subset(Subset(Rows(), range(6)), range(4)), collate_fn=partial(pad, to=3))
    assert found == {"n_workers": 0, "dataset": reading, "collate": collating}


class Stream(IterableDataset):
    def __iter__(self):
        return iter([torch.zeros(1)] * 4)


def test_of_an_iterable_dataset_it_is_the_iteration_though_it_inherits_getitem():
    assert made(Stream())["dataset"]["name"] == "Stream.__iter__"


def test_of_a_package_s_dataset_nothing_is_said():
    assert made(TensorDataset(torch.zeros(4, 1))) == {"n_workers": 0}
