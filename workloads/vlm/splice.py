"""The image-token splice: every `<image>` placeholder gives way to the vision tokens of its image.

All positions are worked out on the host, where the batch is put together. On the device the splice is then two row
copies and waits for nothing; a boolean mask there would make the host ask the device how many it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

import torch
from torch import Tensor

PADDING: Final = 0
IMAGE: Final = 1  # the `<image>` placeholder
FIRST_WORD: Final = 2  # ids from here on are text
UNLABELLED: Final = -100  # cross_entropy's own default for "not a target"

Grid = tuple[Tensor, int]
"""Where each token of a packed row stands in a padded batch, flattened, int64 `[n_tokens]`; and its samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Splice:
    """Where the tokens of a batch go: rows of the spliced batch `[n_samples, length]`, flattened.

    `text_ids` and `text_rows` are int64 `[n_text]`, `image_rows` int64 `[n_images * n_vision]`, images in the order
    of their placeholders. `labels` is int64 `[n_samples, length]`, UNLABELLED at vision tokens and padding;
    `lengths` counts the tokens of each sample without padding. A packed batch is one row `[1, sum(lengths)]` of
    samples end to end; `cells` say where each of its tokens stands in the padded batch, in which attention keeps
    samples apart. Of a padded batch they are None.
    """

    text_ids: Tensor
    text_rows: Tensor
    image_rows: Tensor
    labels: Tensor
    lengths: tuple[int, ...]
    cells: Tensor | None = None

    @property
    def grid(self) -> Grid | None:
        """What a packed row is spread over for attention; None of a padded batch."""
        return None if self.cells is None else (self.cells, len(self.lengths))

    @property
    def n_real(self) -> int:
        """The tokens that are not padding."""
        return sum(self.lengths)

    @property
    def n_padded(self) -> int:
        """All tokens, padding included."""
        return self.labels.numel()

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Splice:
        """Gives the splice with every tensor changed: moved, or pinned."""
        return replace(
            self,
            text_ids=change(self.text_ids),
            text_rows=change(self.text_rows),
            image_rows=change(self.image_rows),
            labels=change(self.labels),
            cells=None if self.cells is None else change(self.cells),
        )


def plan_splice(ids: Sequence[Tensor], labels: Sequence[Tensor], *, n_vision: int, is_packed: bool = False) -> Splice:
    """Gives the splice of samples of unequal length, padded on the right to the longest, or packed end to end.

    `ids` and `labels` hold one int64 `[n_tokens]` each per sample; a placeholder is one id and becomes `n_vision` rows.
    """
    widths = [torch.where(sample == IMAGE, n_vision, 1) for sample in ids]
    lengths = tuple(int(width.sum()) for width in widths)
    taken = lengths if is_packed else (max(lengths),) * len(lengths)
    starts = [end - length for end, length in zip(accumulate(taken), taken, strict=True)]
    text_rows, image_rows = [], []
    flat_labels = torch.full((sum(taken),), UNLABELLED)
    for start, sample, label, width in zip(starts, ids, labels, widths, strict=True):
        begin = start + width.cumsum(0) - width
        is_text = sample != IMAGE
        flat_labels[begin[is_text]] = label[is_text]
        text_rows.append(begin[is_text])
        image_rows.append((begin[~is_text, None] + torch.arange(n_vision)).flatten())
    flat = torch.cat(list(ids))
    return Splice(
        text_ids=flat[flat != IMAGE],
        text_rows=torch.cat(text_rows),
        image_rows=torch.cat(image_rows),
        labels=flat_labels[None] if is_packed else flat_labels.view(len(ids), -1),
        lengths=lengths,
        cells=_cells(lengths) if is_packed else None,
    )


def _cells(lengths: Sequence[int]) -> Tensor:
    longest = max(lengths)
    return torch.cat([row * longest + torch.arange(length) for row, length in enumerate(lengths)])


def spliced(text: Tensor, vision: Tensor, splice: Splice) -> Tensor:
    """Gives the decoder's input `[n_samples, length, width]`, zeros at padding.

    `text` is `[n_text, width]`, `vision` `[n_images, n_vision, width]`, both of one dtype.
    """
    rows = text.new_zeros(splice.labels.numel(), text.shape[-1])
    rows = rows.index_copy(0, splice.text_rows, text)
    rows = rows.index_copy(0, splice.image_rows, vision.flatten(0, 1))
    return rows.unflatten(0, splice.labels.shape)


def targets_of(labels: Tensor) -> Tensor:
    """Gives what each position is to predict: the label of the next one, `[n_samples, length]`.

    A sample begins with its question, which has no labels: in a packed row none predicts into the next sample.
    """
    return torch.nn.functional.pad(labels[:, 1:], (0, 1), value=UNLABELLED)
