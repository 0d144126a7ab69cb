"""Read-only column tables: a frozen dataclass whose fields are arrays of one length."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import picked

if TYPE_CHECKING:
    import pandas as pd

NO_ROW: Final = -1
"""A link to another table that leads nowhere."""

NO_CODE: Final = -1
"""A string that is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns of equal length; the arrays are made read-only. Rows are addressed by position."""

    def __post_init__(self) -> None:
        columns = self.columns()
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of {type(self).__name__} differ in length: {lengths}")
        for column in columns.values():
            column.flags.writeable = False

    def columns(self) -> dict[str, NDArray[Any]]:
        """Give the arrays by field name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self, rows: NDArray[Any]) -> Self:
        """Give the table of the chosen rows (positions or a boolean mask), in that order."""
        return type(self)(**{name: picked(column, rows) for name, column in self.columns().items()})

    @classmethod
    def none(cls, **dtypes: Any) -> Self:
        """Give a table without rows; `dtypes` overrides int64 for named columns."""
        return cls(**{field.name: np.empty(0, dtypes.get(field.name, np.int64)) for field in fields(cls)})

    def to_pandas(self) -> pd.DataFrame:
        """Give the table as a pandas DataFrame (pandas is imported here, not before)."""
        import pandas as pd

        return pd.DataFrame(
            {name: list(column) if column.ndim > 1 else column for name, column in self.columns().items()}
        )
