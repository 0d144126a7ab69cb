"""Mutators of an nsys export, which is SQL statements: its tables, columns, rows and values."""

import random
import re
from collections.abc import Callable
from typing import Any

from tests.fuzz import values

Statement = tuple[str, tuple[Any, ...]]
Statements = list[Statement]
_TABLE = re.compile(r'(CREATE TABLE|INSERT INTO) "?(\w+)"?')
_TYPES = ["TEXT", "BLOB", "REAL", "NUMERIC", "", "INTEGER", "INTEGER NOT NULL DEFAULT 0", "TEXT COLLATE NOCASE", "ANY"]
_BLOBS: list[Any] = [b"", b"\x00" * 8, b"\xff" * 300, b"x", b"\xed\xa0\x80"]
NUMBERS: list[Any] = [
    *(0, 1, -1, 2, 7, 2**31, 2**31 - 1, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 10**15, 10**18, 0.5),
    *(1e308, -1e308, 1e19),
    *(float("inf"), float("-inf"), None, None, "", "x", "7", "1e5", "٣", " 7 ", "0x10", "a\x00b"),
]


def _creations(statements: Statements) -> list[int]:
    return [place for place, (text, _) in enumerate(statements) if text.startswith("CREATE TABLE")]


def _rows(statements: Statements, table: str = "") -> list[int]:
    head = f"INSERT INTO {table} (" if table else "INSERT INTO "
    return [place for place, (text, values_) in enumerate(statements) if text.startswith(head) and values_]


def table_of(statement: Statement) -> str:
    """The table that a statement is about."""
    match = _TABLE.match(statement[0])
    return match[2] if match else ""


def _one_table(rng: random.Random, statements: Statements) -> tuple[int, str] | None:
    places = _creations(statements)
    if not places:
        return None
    place = rng.choice(places)
    return place, table_of(statements[place])


def _columns(statement: Statement) -> list[str]:
    inside = statement[0].partition("(")[2].rpartition(")")[0]
    return [column.strip() for column in inside.split(",")]


def _recreated(table: str, columns: list[str], options: str = "") -> Statement:
    return f"CREATE TABLE {table} ({', '.join(columns)}){options}", ()


def _odd_values(rng: random.Random, statements: Statements) -> None:
    rows = _rows(statements)
    if not rows:
        return
    table = (
        table_of(statements[rng.choice(rows)])
        if rng.random() < 0.4
        else rng.choice(sorted({table_of(statements[row]) for row in rows}))
    )
    rows = _rows(statements, table)
    text, old = statements[rng.choice(rows)]
    column = rng.randrange(len(old))
    new = _value(rng, old[column])
    share = rng.choice([0, 0, 0.2, 1])
    for row in [rng.choice(rows)] if share == 0 else rows:
        said, cells = statements[row]
        if said == text and (share in (0, 1) or rng.random() < share):
            value = _value(rng, cells[column]) if share == 0.2 else new
            statements[row] = (said, (*cells[:column], value, *cells[column + 1 :]))


def _value(rng: random.Random, old: Any) -> Any:
    roll = rng.random()
    if isinstance(old, str) and roll < 0.7:
        return values.name(rng, old)
    if isinstance(old, int) and roll < 0.4:
        return rng.choice(
            [old + 1, old - 1, -old, old * 2, old * 1000, old + 10**6, old - 10**6, 0, str(old), float(old)]
        )
    if roll < 0.5:
        return rng.choice(_BLOBS)
    if roll < 0.6:
        return values.name(rng)
    return rng.choice(NUMBERS)


def _drop_table(rng: random.Random, statements: Statements) -> None:
    if found := _one_table(rng, statements):
        statements[:] = [statement for statement in statements if table_of(statement) != found[1]]


def _drop_column(rng: random.Random, statements: Statements) -> None:
    if found := _one_table(rng, statements):
        columns = _columns(statements[found[0]])
        column = rng.choice(columns).split(" ")[0]
        statements.append((f"ALTER TABLE {found[1]} DROP COLUMN {column}", ()))


def _rename(rng: random.Random, statements: Statements) -> None:
    if found := _one_table(rng, statements):
        column = rng.choice(_columns(statements[found[0]])).split(" ")[0]
        other = rng.choice([column.upper(), f"{column}_", "x", "rowid", "start", "end", "name", "[a b]"])
        table = rng.choice([f"{found[1]}_OLD", found[1].lower() + "x", "x"])
        wanted = [
            f"ALTER TABLE {found[1]} RENAME COLUMN {column} TO {other}",
            f"ALTER TABLE {found[1]} RENAME TO {table}",
        ]
        statements.append((rng.choice(wanted), ()))


def _retype(rng: random.Random, statements: Statements) -> None:
    if found := _one_table(rng, statements):
        place, table = found
        columns = _columns(statements[place])
        for chosen in rng.sample(range(len(columns)), rng.choice([1, 1, len(columns)])):
            columns[chosen] = f"{columns[chosen].split(' ')[0]} {rng.choice(_TYPES)}".strip()
        statements[place] = _recreated(table, columns)


def _another_table(rng: random.Random, statements: Statements) -> None:
    """Without row numbers, strict, generated columns, a temporary one, a view instead, a trigger beside."""
    found = _one_table(rng, statements)
    if not found:
        return
    place, table = found
    columns = _columns(statements[place])
    first = columns[0].split(" ")[0]
    how = rng.choice(["without rowid", "generated", "view", "recursive view", "trigger", "index", "virtual", "empty"])
    if how == "without rowid":
        statements[place] = _recreated(
            table,
            [*columns, f"PRIMARY KEY ({', '.join(column.split(' ')[0] for column in columns[:3])})"],
            " WITHOUT ROWID",
        )
    elif how == "generated":
        statements[place] = _recreated(table, [*columns, f"more INTEGER GENERATED ALWAYS AS ({first} * 2)"])
    elif how == "view":
        statements += [
            (f"ALTER TABLE {table} RENAME TO hidden_{table}", ()),
            (f"CREATE VIEW {table} AS SELECT * FROM hidden_{table}", ()),
        ]
    elif how == "recursive view":
        endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT "
        names = ", ".join(f"x AS {column.split(' ')[0]}" for column in columns)
        statements += [(f"DROP TABLE {table}", ()), (f"CREATE VIEW {table} AS {endless}{names} FROM c", ())]
    elif how == "trigger":
        statements.append((f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END", ()))
    elif how == "index":
        statements.append((f"CREATE INDEX i ON {table} ({first})", ()))
    elif how == "virtual":
        statements += [(f"DROP TABLE {table}", ()), (f"CREATE VIRTUAL TABLE {table} USING fts5({first})", ())]
    else:
        statements.append((f"DELETE FROM {table}", ()))


def _rows_more_or_fewer(rng: random.Random, statements: Statements) -> None:
    rows = _rows(statements)
    if not rows:
        return
    how = rng.choice(["drop", "drop half", "duplicate", "shuffle"])
    if how == "drop":
        del statements[rng.choice(rows)]
    elif how == "drop half":
        dropped = {row for row in rows if rng.random() < 0.5}
        statements[:] = [statement for place, statement in enumerate(statements) if place not in dropped]
    elif how == "duplicate":
        statements += [statements[row] for row in rng.sample(rows, min(len(rows), rng.choice([1, 10, 60])))]
    else:
        tail = [statements[row] for row in rows]
        rng.shuffle(tail)
        statements[:] = [statement for place, statement in enumerate(statements) if place not in set(rows)] + tail


def _shift(rng: random.Random, statements: Statements) -> None:
    """The times of a table moved or stretched."""
    found = _one_table(rng, statements)
    if found:
        by = rng.choice([1, -1]) * rng.choice([1, 1000, 10**6, 10**9, 10**15, 2**62])
        change = rng.choice(
            [
                f"start = start + {by}",
                f"end = end + {by}",
                f"start = start + {by}, end = end + {by}",
                "end = start",
                "start = end, end = start",
                "start = 0",
                "end = NULL",
            ]
        )
        statements.append((f"UPDATE {found[1]} SET {change}", ()))


def _pragma(rng: random.Random, statements: Statements) -> None:
    statements.insert(
        0,
        (
            rng.choice(
                [
                    "PRAGMA encoding='UTF-16le'",
                    "PRAGMA page_size=512",
                    "PRAGMA user_version=-1",
                    "PRAGMA auto_vacuum=1",
                    "PRAGMA page_size=65536",
                    "PRAGMA application_id=1",
                ]
            ),
            (),
        ),
    )


MUTATORS: list[tuple[int, str, Callable[[random.Random, Statements], None]]] = [
    (24, "odd values", _odd_values),
    (5, "drop table", _drop_table),
    (5, "drop column", _drop_column),
    (4, "rename", _rename),
    (5, "retype", _retype),
    (5, "another table", _another_table),
    (6, "rows", _rows_more_or_fewer),
    (6, "shift", _shift),
    (1, "pragma", _pragma),
]
"""How often, name, and what it does."""


def mutated(rng: random.Random, statements: Statements) -> list[str]:
    """Mutate statements in place some times; gives what was done."""
    chosen = rng.choices(MUTATORS, [weight for weight, _, _ in MUTATORS], k=rng.choice([1, 1, 1, 2, 2, 3, 5]))
    for _, _, mutate in chosen:
        mutate(rng, statements)
    return [what for _, what, _ in chosen]
