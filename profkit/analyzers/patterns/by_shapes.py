"""The patterns that recorded shapes tell: work that is thrown away for most of it."""

from __future__ import annotations

from typing import Final

from profkit.analyzers.patterns import masked, order, pairs, smaller, spared, tables, thrown
from profkit.analyzers.patterns.cost import Pattern
from profkit.findings.wasted import (
    DENSE_EXPERTS,
    DENSE_TABLE,
    FULL_SORT,
    LONG_ORDER,
    MASKED_ROWS,
    MORE_ROWS,
    NO_CACHE,
    ONE_HOT,
    PAIRS,
    REBUILT,
    THROWN_AWAY,
)

BY_SHAPES: Final = (
    Pattern(
        DENSE_TABLE,
        tables.updates,
        False,
        ("update or zeroing of a table", "updates and zeroings of tables"),
        kept=tables.kept_of_updates,
        title=tables.title_of_updates,
    ),
    Pattern(
        THROWN_AWAY,
        thrown.products,
        False,
        ("such product", "such products, forward and backward"),
        kept=thrown.kept_of_products,
        title=thrown.title_of_products,
    ),
    Pattern(
        DENSE_EXPERTS,
        spared.dense_experts,
        False,
        ("stretch of such work", "stretches of such work"),
        kept=spared.kept_of_experts,
        title=spared.title_of_experts,
    ),
    Pattern(
        NO_CACHE,
        spared.regrown,
        False,
        ("generation of a sequence", "generations of sequences"),
        kept=spared.kept_of_regrown,
    ),
    Pattern(
        FULL_SORT,
        spared.full_sorts,
        False,
        ("such sort", "such sorts"),
        kept=spared.kept_of_sorts,
        title=spared.title_of_sorts,
    ),
    Pattern(
        MORE_ROWS,
        smaller.gathered,
        False,
        ("such layer", "such layers, forward and backward"),
        kept=smaller.kept_of_gathered,
        title=smaller.title_of_gathered,
    ),
    Pattern(
        PAIRS,
        pairs.pairs,
        False,
        ("such operator", "such operators, forward and backward"),
        kept=pairs.kept_of_pairs,
        title=pairs.title_of_pairs,
    ),
    Pattern(
        REBUILT,
        smaller.rebuilt,
        False,
        ("such copy", "such copies"),
        kept=smaller.kept_of_rebuilt,
        title=smaller.title_of_rebuilt,
    ),
    Pattern(
        MASKED_ROWS,
        masked.masked_rows,
        False,
        ("such operator", "such operators, forward and backward"),
        kept=lambda _, __: 1.0,
        title=masked.title_of_rows,
    ),
    Pattern(
        LONG_ORDER,
        order.long_orders,
        False,
        ("such product", "such products, forward and backward"),
        kept=order.kept_of_orders,
    ),
    Pattern(ONE_HOT, spared.one_hots, False, ("such product", "such products")),
)
