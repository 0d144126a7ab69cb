"""Files that are no nsys export, damaged and built ones: one line, exit code 3, nothing in the file is executed."""

import random
import re
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profkit.errors import ProfkitError, TraceFormatError, UnsupportedTraceError
from profkit.ingest.nsys import fetch
from profkit.ingest.nsys.sqlite import opened
from profkit.ingest.read import read_traces
from tests.calling import profkit
from tests.conftest import ROOT
from tests.ingest.nsys_files import Export, global_tid, training

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture(params=["compiled", "python"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows by the compiled library where there is one, and without it."""
    if request.param == "python":
        monkeypatch.setattr(fetch, "available", lambda: None)
    elif fetch.available() is None:
        pytest.skip("no compiled library")


def refusal(path: Path) -> ProfkitError:
    with pytest.raises(ProfkitError) as caught:
        list(read_traces(str(path)))
    error = caught.value
    assert error.exit_code == 3
    assert "\n" not in error.message
    assert path.name in error.message
    return error


def test_an_sqlite_database_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
    connection.close()
    assert "not an nsys export" in refusal(path).message


def test_bytes_that_only_begin_like_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"SQLite format 3\x00" + bytes(random.Random(0).randbytes(5000)))  # noqa: S311
    assert "SQLite cannot read it" in refusal(path).message


@pytest.mark.parametrize(
    "sql",
    [
        f"CREATE VIEW {KERNEL} AS SELECT 1 AS start, 2 AS end, 3 AS demangledName",
        f"CREATE VIRTUAL TABLE {KERNEL} USING fts5(start, end, demangledName)",
        f"CREATE TRIGGER {KERNEL} AFTER INSERT ON StringIds BEGIN SELECT 1; END",
    ],
)
def test_what_is_no_table_is_not_read(tmp_path: Path, sql: str) -> None:
    path = training().write(tmp_path / "x.sqlite", without=[KERNEL], sql=[sql])
    message = refusal(path).message
    assert f"{KERNEL} is a " in message
    assert message.endswith(", not a table")


def test_triggers_and_views_beside_the_tables_change_nothing(tmp_path: Path) -> None:
    path = training().write(
        tmp_path / "x.sqlite",
        sql=[
            f"CREATE TRIGGER evil AFTER INSERT ON {KERNEL} BEGIN DELETE FROM StringIds; END",  # noqa: S608
            "CREATE VIEW other AS SELECT randomblob(1000000000)",
        ],
    )
    before = path.read_bytes()
    (trace,) = read_traces(str(path))
    assert len(trace.gpu) == 32
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["x.sqlite"]


def test_generated_columns_are_not_computed(tmp_path: Path) -> None:
    sql = [
        f"ALTER TABLE {KERNEL} RENAME TO kept",
        f"CREATE TABLE {KERNEL} (start, end, demangledName AS (7), shortName AS (7), globalPid)",
        f"INSERT INTO {KERNEL} (start, end, globalPid) SELECT start, end, globalPid FROM kept",  # noqa: S608
    ]
    path = training().write(tmp_path / "x.sqlite", sql=sql)
    assert "has no column shortName" in refusal(path).message


@pytest.mark.parametrize(
    ("update", "says"),
    [
        ("start = 'soon'", "start holds 'soon' where a whole number is expected"),
        ("start = 1.5", "start holds '1.5' where a whole number is expected"),
        ("start = x'00ff'", "where a whole number is expected"),
        ("demangledName = 'gemm'", "demangledName holds 'gemm' where a whole number is expected"),
        ("start = -9223372036854775808", "times that cannot be nanoseconds"),
        ("deviceId = 99999999999", "which is not an id"),
    ],
)
def test_values_of_a_wrong_type(tmp_path: Path, update: str, says: str) -> None:
    path = training().write(tmp_path / "x.sqlite", sql=[f"UPDATE {KERNEL} SET {update} WHERE rowid = 5"])  # noqa: S608
    assert says in refusal(path).message


def test_null_where_a_time_must_be(tmp_path: Path) -> None:
    sql = [f"CREATE TABLE other AS SELECT * FROM {KERNEL}", f"DROP TABLE {KERNEL}"]  # noqa: S608 - loses NOT NULL
    sql += [f"ALTER TABLE other RENAME TO {KERNEL}", f"UPDATE {KERNEL} SET start = NULL WHERE rowid = 5"]  # noqa: S608
    path = training().write(tmp_path / "x.sqlite", sql=sql)
    assert "start holds nothing where a whole number is expected" in refusal(path).message


def test_numbers_where_text_is_expected(tmp_path: Path) -> None:
    sql = ["CREATE TABLE other AS SELECT * FROM NVTX_EVENTS", "DROP TABLE NVTX_EVENTS"]
    sql += ["CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid)"]
    sql += ["INSERT INTO NVTX_EVENTS SELECT start, end, eventType, 1.5, globalTid FROM other"]
    path = training().write(tmp_path / "x.sqlite", sql=sql)
    (trace,) = read_traces(str(path))  # SQLite gives any number as text there
    assert {trace.name(int(code)) for code in trace.spans.name} == {"1.5"}


def test_rows_that_end_before_they_start_are_left_out_and_counted(tmp_path: Path) -> None:
    sql = [f'UPDATE {KERNEL} SET "end" = start - 7 WHERE rowid = 5']  # noqa: S608
    (trace,) = read_traces(str(training().write(tmp_path / "x.sqlite", sql=sql)))
    assert len(trace.gpu) == 31
    assert "1 row that ends before it starts left out" in [warning.message for warning in trace.warnings]


@pytest.mark.parametrize("lost", ["%", "gemm_0"])
def test_kernels_without_names_are_no_trace(tmp_path: Path, lost: str) -> None:
    """A collective without its name would count as compute."""
    sql = [f"DELETE FROM StringIds WHERE value LIKE '{lost}'"]  # noqa: S608
    error = refusal(training().write(tmp_path / "x.sqlite", sql=sql))
    assert f"{32 if lost == '%' else 16} of 32 kernels have no name in StringIds" in error.message
    assert "32 of 32 kernels" in refusal(training().write(tmp_path / "y.sqlite", without=["StringIds"])).message


def test_a_kernel_of_many_without_its_name_is_said(tmp_path: Path) -> None:
    sql = [f"UPDATE {KERNEL} SET demangledName = 999 WHERE rowid = 5"]  # noqa: S608
    (trace,) = read_traces(str(training(n_steps=20).write(tmp_path / "x.sqlite", sql=sql)))
    assert {trace.name(int(code)) for code in trace.gpu.name} == {"gemm_0", "gemm_1", "string 999"}
    (told,) = [warning for warning in trace.warnings if warning.id == "nsys.names"]
    assert (told.count, told.message) == (1, "1 of 160 kernels has no name in StringIds: treated as compute")


def test_what_lies_beside_the_file_in_a_log_is_not_passed_over(tmp_path: Path) -> None:
    """Changes that are not in the file yet: reading it alone would give another trace than its owner sees."""
    path = training().write(tmp_path / "x.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = wal")
    assert len(next(read_traces(str(path))).gpu) == 32  # an empty log is none
    connection.execute(f"DELETE FROM {KERNEL} WHERE rowid > 10")  # noqa: S608
    connection.commit()
    assert "x.sqlite-wal has changes" in refusal(path).message
    connection.close()
    (trace,) = read_traces(str(path))
    assert len(trace.gpu) == 10


def test_a_transaction_that_is_not_over_is_refused(tmp_path: Path) -> None:
    path = training(n_steps=200).write(tmp_path / "x.sqlite")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN")
    connection.execute(f"UPDATE {KERNEL} SET streamId = 8")  # noqa: S608
    assert (tmp_path / "x.sqlite-journal").read_bytes()[:1] != b"\0"
    assert "x.sqlite-journal has changes" in refusal(path).message
    connection.execute("ROLLBACK")
    (trace,) = read_traces(str(path))
    assert set(trace.gpu.stream.tolist()) == {7}
    connection.execute("PRAGMA journal_mode = persist")
    connection.execute(f"UPDATE {KERNEL} SET streamId = 9")  # noqa: S608 - leaves a journal whose head is zeros
    (trace,) = read_traces(str(path))
    assert set(trace.gpu.stream.tolist()) == {9}
    connection.close()


def test_tables_that_only_describe_may_lack_columns(tmp_path: Path) -> None:
    export = training()
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=144)
    export.add("ThreadNames", nameId=export.string("python"), globalTid=global_tid(144))
    export.add("OSRT_API", start=9_000_000, end=9_100_000, globalTid=global_tid(144), nameId=export.string("poll"))
    absent = ["TARGET_INFO_CUDA_DEVICE.pid", "ThreadNames.nameId", "OSRT_API.nameId"]
    sql = ["CREATE TABLE PROFILER_OVERHEAD (start INT, duration INT)", "INSERT INTO PROFILER_OVERHEAD VALUES (1, 2)"]
    (trace,) = read_traces(str(export.write(tmp_path / "x.sqlite", without=absent, sql=sql)))
    assert len(trace.gpu) == 32
    assert [trace.name(int(code)) for code in trace.waits.name] == ["unnamed"]
    assert any("PROFILER_OVERHEAD has no column end" in warning.message for warning in trace.warnings)


def test_text_that_is_no_utf8_and_control_characters(tmp_path: Path) -> None:
    sql = [
        "UPDATE StringIds SET value = CAST(x'ff1b5b33316dfe' AS TEXT)",
        "UPDATE NVTX_EVENTS SET text = CAST(x'c3' AS TEXT)",
    ]
    path = training().write(tmp_path / "x.sqlite", sql=sql)
    (trace,) = read_traces(str(path))
    assert {trace.name(int(code)) for code in trace.gpu.name} == {"\ufffd\x1b[31m\ufffd"}
    done = profkit("triage", str(path), "-v")
    assert "\x1b" not in done.stdout + done.stderr


def test_huge_strings_are_cut_and_longer_ones_refused(tmp_path: Path) -> None:
    export = training()
    path = export.write(tmp_path / "x.sqlite", sql=["UPDATE StringIds SET value = hex(zeroblob(30000000))"])
    (trace,) = read_traces(str(path))
    assert max(map(len, trace.strings)) == 16_384
    path = export.write(
        tmp_path / "y.sqlite", sql=["UPDATE StringIds SET value = hex(zeroblob(100000000)) WHERE id = 10"]
    )
    assert "SQLite cannot read it" in refusal(path).message


def test_a_schema_of_a_later_major_version(tmp_path: Path) -> None:
    export = training()
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="4.0.0")
    assert isinstance(refusal(export.write(tmp_path / "x.sqlite")), UnsupportedTraceError)


def test_a_table_with_very_many_columns(tmp_path: Path) -> None:
    path = training().write(tmp_path / "x.sqlite", without=[KERNEL])
    columns = ", ".join(f"c{number}" for number in range(1999))
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {KERNEL} ({columns})")
    connection.commit()
    assert "has no column" in refusal(path).message
    many = ", ".join(f"c{number}" for number in range(10**6))
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (f"CREATE TABLE {KERNEL} ({many})", KERNEL))
    connection.commit()
    connection.close()
    assert "SQLite cannot read it" in refusal(path).message


def test_pages_that_point_at_each_other_come_to_an_end(tmp_path: Path) -> None:
    """An interior page whose children are all the same leaf page makes a small file seem endless."""
    export = Export()
    for number in range(3000):
        export.kernel(10_000 * number + 10_000, 10_000 * number + 19_000, "gemm", launched=False)
    path = export.write(tmp_path / "x.sqlite")
    begun = time.monotonic()
    data = bytearray(path.read_bytes())
    page_size = int.from_bytes(data[16:18], "big")
    n_looped = 0
    for start in range(page_size, len(data), page_size):
        if data[start] == 5:  # an interior page of a table
            n_cells = int.from_bytes(data[start + 3 : start + 5], "big")
            for cell in range(n_cells):
                at = start + int.from_bytes(data[start + 12 + 2 * cell : start + 14 + 2 * cell], "big")
                data[at : at + 4] = (start // page_size + 1).to_bytes(4, "big")
                n_looped += 1
    assert n_looped
    path.write_bytes(data)
    assert isinstance(refusal(path), TraceFormatError)
    assert time.monotonic() - begun < 20


def test_rows_that_share_one_long_text_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps and much time: each of the rows is a text of 20 MB, and all are the same pages of the file."""
    path = training().write(tmp_path / "x.sqlite")
    connection = sqlite3.connect(path)
    n_long = 20 * 2**20
    connection.execute("INSERT INTO StringIds VALUES (1000000, ?)", ("x" * n_long,))
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(2**20 + n, "y" * 600) for n in range(1000)])
    connection.commit()
    connection.close()
    data = bytearray(path.read_bytes())
    usable = int.from_bytes(data[16:18], "big")
    least = (usable - 12) * 32 // 255 - 23
    stored = least + (n_long + 6 - least) % (usable - 4)  # of the long row beside the others; the rest is elsewhere
    stored = stored if stored <= usable - 35 else least
    (at,) = (found.end() for found in re.finditer(rb"\x8a\x80\x80\x06\xbd\x84\x40(?=\x06\x00)", data))  # size, number
    rest = bytes(data[at : at + stored + 4])
    rows = list(re.finditer(rb"(?s)\x84\x5c(\xc0..)(?=\x04\x00\x89\x3d)", bytes(data)))
    for row in rows:
        cell = b"\x8a\x80\x80\x06" + row[1] + rest
        data[row.start() : row.start() + len(cell)] = cell
    path.write_bytes(data)
    monkeypatch.setattr("profkit.ingest.nsys.sqlite._FREE_S", 0.2)
    monkeypatch.setattr("profkit.ingest.nsys.sqlite._BYTES_PER_S", 10**9)
    begun = time.thread_time()
    assert len(rows) > 900
    assert "does not end" in refusal(path).message
    assert time.thread_time() - begun < 5


def test_any_damage_gives_a_trace_or_one_line(tmp_path: Path) -> None:
    whole = training().write(tmp_path / "whole.sqlite").read_bytes()
    path = tmp_path / "x.sqlite"
    chance = random.Random(20)  # noqa: S311
    n_read = 0
    lines: set[tuple[int, int]] = set()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 4, 30))):
            data[chance.randrange(20, len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randrange(100, len(data))] if chance.random() < 0.2 else data)
        try:
            n_read += bool(list(read_traces(str(path))))
        except ProfkitError as error:
            lines.add((error.exit_code, error.message.count("\n")))
    assert 10 < n_read < 150
    assert lines == {(3, 0)}


def test_only_selects_from_tables_are_allowed(tmp_path: Path) -> None:
    path = training().write(tmp_path / "x.sqlite")
    with opened(path, "x") as database:
        for sql in (
            "SELECT load_extension('x')",
            "SELECT randomblob(9)",
            "ATTACH 'y' AS other",
            "PRAGMA query_only = OFF",
            "DELETE FROM StringIds",
            "CREATE TABLE t (a)",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                database._connection.execute(sql).fetchall()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["x.sqlite"]


@pytest.mark.parametrize("name", ["a b.sqlite", "per%cent.sqlite", "ques?tion.sqlite", "#.sqlite", "file:x?mode=rw"])
def test_names_that_a_uri_would_read_otherwise(tmp_path: Path, name: str) -> None:
    (trace,) = read_traces(str(training().write(tmp_path / name)))
    assert len(trace.gpu) == 32


def test_a_read_only_file_in_a_read_only_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = training().write(folder / "x.sqlite")
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        (trace,) = read_traces(str(path))
    finally:
        folder.chmod(0o755)
    assert len(trace.gpu) == 32


def test_the_command_line_says_one_line_and_leaves_with_3(tmp_path: Path) -> None:
    path = training().write(tmp_path / "x.sqlite", without=[KERNEL], sql=[f"CREATE VIEW {KERNEL} AS SELECT 1"])
    for command in ("triage", "info"):
        done = profkit(command, str(path))
        assert done.returncode == 3
        assert done.stdout == ""
        said, hint = done.stderr.splitlines()
        assert said.endswith("is a view, not a table")
        assert hint.startswith("  hint: ")
    piped = subprocess.run(
        [sys.executable, "-m", "profkit", "triage", "-"],
        input=path.read_bytes(),
        capture_output=True,
        check=False,
        cwd=ROOT,
    )
    assert piped.returncode == 3
    assert b"profkit triage reads those, by their path" in piped.stderr
