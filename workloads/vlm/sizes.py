"""How large the model and its samples are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The shape of model and data: widths and depths are counts, `image` and `patch` pixels along an edge.

    `max_text` is the most text tokens a sample holds, its image placeholder included.
    """

    image: int
    patch: int
    tower_width: int
    tower_depth: int
    tower_heads: int
    width: int
    depth: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    max_text: int

    @property
    def n_vision(self) -> int:
        """How many vision tokens an image becomes."""
        return (self.image // self.patch) ** 2


# Chosen: tiny has steps of tens of ms on one core; wide has few operators and 11 MB a block, so that moving parameters
# weighs as much as computing with them; small gives one GPU kernels that outlast their launches.
SIZES: Final[dict[str, Sizes]] = {
    "tiny": Sizes(
        image=32,
        patch=8,
        tower_width=96,
        tower_depth=2,
        tower_heads=4,
        width=128,
        depth=4,
        heads=4,
        kv_heads=2,
        mlp=352,
        vocabulary=512,
        max_text=48,
    ),
    "wide": Sizes(
        image=32,
        patch=8,
        tower_width=96,
        tower_depth=1,
        tower_heads=4,
        width=512,
        depth=3,
        heads=8,
        kv_heads=2,
        mlp=1408,
        vocabulary=512,
        max_text=48,
    ),
    "small": Sizes(
        image=224,
        patch=16,
        tower_width=768,
        tower_depth=12,
        tower_heads=12,
        width=1024,
        depth=16,
        heads=16,
        kv_heads=4,
        mlp=2816,
        vocabulary=32768,
        max_text=512,
    ),
}
