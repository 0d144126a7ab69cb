"""Read-only column tables: a frozen Struct whose fields are arrays of one length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from profkit.model.arrays import picked

if TYPE_CHECKING:
    import pandas as pd

NO_ROW: Final = -1
"""A link to another table that leads nowhere."""

NO_CODE: Final = -1
"""A string that is absent."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of equal length; the arrays are made read-only. Rows are addressed by position."""

    def __post_init__(self) -> None:
        columns = self.columns()
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of {type(self).__name__} differ in length: {lengths}")
        for column in columns.values():
            column.flags.writeable = False

    def columns(self) -> dict[str, NDArray[Any]]:
        """The arrays by field name."""
        return asdict(self)

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self, rows: NDArray[Any]) -> Self:
        """The table of the chosen rows (positions or a boolean mask), in that order."""
        return type(self)(**{name: picked(column, rows) for name, column in self.columns().items()})

    @classmethod
    def none(cls, **dtypes: Any) -> Self:
        """A table without rows; `dtypes` overrides int64 for named columns."""
        return cls(**{name: np.empty(0, dtypes.get(name, np.int64)) for name in cls.__struct_fields__})

    def to_pandas(self) -> pd.DataFrame:
        """The columns as a pandas DataFrame, imported only here; names are codes, which `Trace.to_pandas` decodes."""
        import pandas as pd

        return pd.DataFrame(
            {name: list(column) if column.ndim > 1 else column for name, column in self.columns().items()}
        )


class Aligned(msgspec.Struct, frozen=True, kw_only=True):
    """Arrays whose first axis is the same rows, beside values that hold for all of these."""

    def at(self, rows: NDArray[Any]) -> Self:
        """The same of some rows (positions or a boolean mask)."""
        return replace(
            self, **{name: each[rows] for name, each in asdict(self).items() if isinstance(each, np.ndarray)}
        )
