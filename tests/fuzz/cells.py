"""Mutators of tables of text: lines, cells, headings."""

import csv
import io
import random

from tests.fuzz import values

NUMBERS = [
    *("0", "-1", "1e308", "-1e308", "1e400", "nan", "inf", "-inf", "NaN", "1_000", "1,234.5", "1.234,5", "1e-320", "9" * 400, "0x10", "٣", " 7 "),
    *("", "-", "oom", "n/a", "(!) n/a", "None", "true", "1e19", str(2**63), str(10**30), "0.1", "1e-9", "5%", "5 %", "1/2", "+5", "1e5000", "--5", "1e9", "1e12", "1e15"),
]  # fmt: skip


def split(line: str) -> list[str]:
    """The cells of a CSV line."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return line.split(",")


def joined(cells: list[str]) -> str:
    """Cells as a CSV line."""
    out = io.StringIO()
    try:
        csv.writer(out, lineterminator="").writerow(cells)
    except csv.Error:
        return ",".join(cells)
    return out.getvalue()


def text(rng: random.Random, old: str) -> str:
    """Another cell."""
    roll = rng.random()
    if roll < 0.6:
        return rng.choice(NUMBERS)
    if roll < 0.7:
        return old * rng.choice([2, 50])
    return values.name(rng, old)


def mutated(rng: random.Random, lines: list[str]) -> list[str]:
    """Mutate lines in place some times; gives what was done."""
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not lines:
            lines.append("")
        place = rng.randrange(len(lines))
        how = rng.choice(
            [
                *("cell", "cell", "cell", "column", "heading", "drop", "duplicate", "swap", "cut", "insert"),
                *("more cells", "letters"),
            ]
        )
        cells = split(lines[place])
        column = rng.randrange(len(cells)) if cells else 0
        if how in ("cell", "heading"):
            place = 0 if how == "heading" else place
            cells = split(lines[place])
            if cells:
                column = rng.randrange(len(cells))
                cells[column] = text(rng, cells[column])
                lines[place] = joined(cells)
        elif how == "column":
            new = text(rng, "")
            for line in range(1, len(lines)):
                row = split(lines[line])
                if column < len(row):
                    row[column] = new
                    lines[line] = joined(row)
        elif how == "drop":
            del lines[place]
        elif how == "duplicate":
            lines[place:place] = [lines[place]] * rng.choice([1, 2, 20, 200])
        elif how == "swap":
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        elif how == "cut":
            lines[place] = lines[place][: rng.randrange(len(lines[place]) + 1)]
        elif how == "insert":
            lines.insert(place, values.name(rng, lines[place]))
        elif how == "more cells":
            lines[place] = joined([*cells, *cells[:1]])
        else:
            at = rng.randrange(len(lines[place]) + 1)
            lines[place] = lines[place][:at] + values.name(rng) + lines[place][at:]
        done.append(how)
    return done
