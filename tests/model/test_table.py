"""Tables: columns of one length, read-only, addressed by position."""

import numpy as np
import pytest

from profkit.model.trace import DeviceSpans, Flows


def flows(n: int, **changes: np.ndarray) -> Flows:
    columns = {"start_ns": np.arange(n), "flow_id": np.arange(n)}
    columns |= {"thread": np.zeros(n, np.int32), "is_start": np.zeros(n, np.int8)}
    return Flows(**{**columns, **changes})


def test_columns_differ_in_length() -> None:
    with pytest.raises(ValueError, match="columns of Flows differ in length"):
        flows(3, flow_id=np.arange(2))


def test_rows_are_taken_by_position_or_mask() -> None:
    table = flows(4)
    assert table.take(np.array([2, 0])).flow_id.tolist() == [2, 0]
    assert len(table.take(table.flow_id > 1)) == 2
    with pytest.raises(ValueError, match="read-only"):
        table.take(np.array([0])).flow_id[0] = 9


def test_an_empty_table_has_its_types() -> None:
    table = DeviceSpans.none(name=np.int32)
    assert (len(table), table.name.dtype, table.start_ns.dtype) == (0, np.int32, np.int64)
    assert list(table.to_pandas().columns) == ["start_ns", "end_ns", "name", "device", "stream"]
