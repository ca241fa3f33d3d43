"""Tables from CSV files, with or without a line of names."""

from __future__ import annotations

import csv
import io
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import path_hint, show_path, suggestion
from volumetric.train.sample_table import SampleTable

logger: logging.Logger = logging.getLogger(__name__)

_QUOTED: Final = re.compile(r'"[^"]*"')
_NAMES: Final = {",": "comma", ";": "semicolon", "\t": "tab"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable(SampleTable):
    """Cells of a CSV file as text.

    Attributes
    ----------
    columns : names of the columns, from the first line; without a header their positions, ``"0"``, ``"1"``, …
    rows : cells of each row, one for each column
    lines : line number at which each row ends
    header : whether the first line has the column names
    separator : character between the values of a line; with ``;`` decimals may have a comma
    """

    path: Path
    columns: tuple[str, ...]  # pyright: ignore[reportIncompatibleMethodOverride]  (a field is a property that is set)
    rows: list[list[str]]
    lines: list[int]
    header: bool
    separator: str = ","

    @property
    def name(self) -> str:
        return str(self.path)

    def __len__(self) -> int:
        return len(self.rows)

    def labels(self, position: int) -> list[str]:
        return [row[position] for row in self.rows]

    def number(self, cell: str) -> float | None:
        """Return the number of a cell, None if it has none."""
        return _number(cell, self.separator)

    def place(self, row: int) -> str:
        return f"line {self.lines[row]}"

    def positions(self, names: Sequence[str]) -> list[int]:
        """Return the positions of columns; without a header, as many names as columns mean all columns in order.

        Raises
        ------
        SpecError : a column is missing
        """
        missing = next((name for name in names if name not in self.columns), None)
        if missing is None:
            return [self.columns.index(name) for name in names]
        unnamed = not self.header or all(name.isdecimal() for name in names)
        if unnamed and len(names) == len(self.columns):
            return list(range(len(names)))
        raise SpecError(f"{self.path} has no column {missing!r}; {self.describe()}", hint=self.hint(missing))

    def expect_samples(self, targets: Sequence[str]) -> None:
        SampleTable.expect_samples(self, targets)  # super() needs the class that slots=True replaced
        self.check_columns(self.positions(targets))

    def check_columns(self, positions: Sequence[int]) -> None:
        """Raise `CheckpointError` if one of the columns is the empty one that trailing commas make."""
        last = len(self.columns) - 1
        if not self.header or last not in positions or self.columns[last].strip():
            return
        if self.rows and not any(row[last].strip() for row in self.rows):
            mark = _NAMES[self.separator]
            raise CheckpointError(
                f"{self.path}: the last column, number {last + 1}, has no name and no values: "
                f"each line ends in a {mark}",
                hint=f"remove the trailing {mark} of each line",
            )

    def numbers(self, positions: Sequence[int]) -> Array:
        """Return columns as float32 ``[rows, columns]``.

        Raises
        ------
        CheckpointError : a cell is not a finite number; the message has its line and column
        """
        self.check_columns(positions)
        values = np.empty((len(self.rows), len(positions)), np.float32)
        for i, row in enumerate(self.rows):
            for j, column in enumerate(positions):
                number = self.number(row[column])
                where = f"{self.path}: line {self.lines[i]}, column {self.columns[column]!r}"
                if number is None:
                    what = f"{row[column]!r} is not a number" if row[column].strip() else "the cell is empty"
                    raise CheckpointError(f"{where}: {what}", hint=self._way_out(row[column], positions))
                values[i, j] = number
                if not math.isfinite(values[i, j]):
                    raise CheckpointError(f"{where} is not finite", hint="remove that line from the file")
        return values

    def _way_out(self, cell: str, positions: Sequence[int]) -> str:
        """Return what to do about a cell that is no number."""
        if not cell.strip():
            return "fill in the cell, or remove the line"
        if _number(cell.replace(",", "").replace(".", "")) is not None:
            return "write decimals with a point and no marks of thousands, as 1234.5"
        if len(positions) == 1 and len(self.columns) > 1:
            return "set classes = true for classes by name"
        return (
            "remove the column, or write numbers in place of its texts; only a target may be text, with classes = true"
        )

    def hint(self, missing: str) -> str:
        if len(self.columns) == 1 and len(self.columns[0].split()) > 1:
            return "separate values by commas, semicolons or tabs"
        if not self.rows:
            return "write a line for each sample, below the line with the names of the columns"
        near = suggestion(missing, self.columns, "") if self.header and missing else ""
        return near or (
            "the first line has the column names"
            if self.header
            else f"without a header line columns are named by position, as {self.columns[-1]!r}"
        )


def read_csv(path: Path, header: bool | None = None, text: str | None = None) -> CsvTable:
    """Read a CSV file.

    Values are separated by commas; by semicolons or tabs if the first line has no comma outside quotes. A comma between
    digits of a file with semicolons is that of decimals, as spreadsheets write them where decimals have commas.

    Parameters
    ----------
    header : whether the first line has the names of the columns. None: it has, unless it has a number in every column
        with numbers below; a missing header is logged as a warning
    text : content of the table, which `path` then only names; None: that of the file

    Raises
    ------
    CheckpointError : the file cannot be read, is not a CSV file, begins with comments, or its lines have unequal
        numbers of values
    SpecError : the first line is 0, 1, 2, … and `header` is None
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") if text is None else io.StringIO(text, newline="") as file:
            first = file.readline()
            separator = _separator(first)
            reader = csv.reader(chain([first], file), delimiter=separator)
            numbered = [(reader.line_num, row) for row in reader if row]
    except OSError as error:
        raise CheckpointError(
            f"cannot read {show_path(path)}: {error.strerror or error}", hint=path_hint(path)
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        packed = False
        if text is None:
            with path.open("rb") as file:
                packed = file.read(2) == b"PK"
        hint = f'set npz = "{path.name}" for arrays; a spreadsheet is saved as CSV first' if packed else None
        raise CheckpointError(f"{path} is not a CSV file: {error}", hint=hint or "save it as UTF-8 text") from None
    _refuse_comments(path, numbered, separator)
    lines, rows = [line for line, _ in numbered], [row for _, row in numbered]
    width = len(rows[0]) if rows else 0
    for line, row in numbered:
        if len(row) != width:
            raise CheckpointError(
                f"{path}: line {line} has {len(row)} values, but the first line has {width}",
                hint=_way_to_equal_lines(rows[0], row, separator),
            )
    named = _has_names(path, rows, separator) if header is None else header
    if not named and header is None and rows:
        logger.warning(
            "%s has no header: line %d is a row of values, so columns are named by position, 0 … %d",
            path,
            lines[0],
            width - 1,
        )
    if named:
        columns, rows, lines = tuple(rows[0]) if rows else (), rows[1:], lines[1:]
        if rows and len(columns) > 1 and not columns[0].strip():
            logger.warning(
                "%s: the first column has no name, as the index that pandas writes; remove it unless it is an input",
                path,
            )
        twice = next((name for name in columns if columns.count(name) > 1), None)
        if twice is not None:
            raise SpecError(f"{path} has two columns {twice!r}", hint="give each column a unique name")
    else:
        columns = tuple(map(str, range(width)))
    return CsvTable(path=path, columns=columns, rows=rows, lines=lines, header=named, separator=separator)


def _refuse_comments(path: Path, numbered: list[tuple[int, list[str]]], separator: str) -> None:
    """Raise `CheckpointError` for comments above the table. One line with ``#`` may have names, such as ``#id,x``."""
    above = list(takewhile(lambda each: each[1][0].lstrip().startswith("#"), numbered))
    if not above or len(above) == len(numbered):
        return
    [first, *_], below = above, [row for _, row in numbered[len(above) :]]
    narrow = len(first[1]) == 1 and _separator(below[0][0]) in below[0][0]
    if len(above) > 1 or narrow or len(below[0]) != len(first[1]) or _names_above_numbers(below, separator):
        last = above[-1][0]
        which = f"line {last}" if last == first[0] else f"lines {first[0]} to {last}"
        raise CheckpointError(
            f"{path}: {which} above the table begin{'s' * (last == first[0])} with #, as comments; CSV files have none",
            hint=f"remove {which}: the first line has the names of the columns, or values",
        )


def _names_above_numbers(rows: list[list[str]], separator: str) -> bool:
    """Whether the first row has a text above numbers."""
    first, *others = rows
    columns = zip(first, *others) if others else ()  # noqa: B905  (lines may have unequal lengths here)
    return any(
        _number(name, separator) is None and all(_number(cell, separator) is not None for cell in cells)
        for name, *cells in columns
    )


def _way_to_equal_lines(first: list[str], row: list[str], separator: str) -> str:
    """Return what to do about a line that has another number of values than the first one."""
    mark = _NAMES[separator]
    for end, other, where in ((first, row, "line 1"), (row, first, "the line")):
        if len(end) == len(other) + 1 and not end[-1].strip():
            return f"remove the trailing {mark} of {where}"
    return f'complete the line, or quote a value that contains a {mark}: "a{separator} b"'


def _separator(line: str) -> str:
    """Return the character between values, from the first line."""
    plain = _QUOTED.sub("", line)
    return "," if "," in plain else next((mark for mark in ";\t" if mark in plain), ",")


def _has_names(path: Path, rows: list[list[str]], separator: str) -> bool:
    """Whether the first row has names."""
    if not rows:
        return True
    first, *others = rows
    numeric = [i for i in range(len(first)) if all(_number(row[i], separator) is not None for row in others)]
    if not numeric or any(_number(first[i], separator) is None for i in numeric):
        return True
    counted = [str(i) for i in range(len(numeric))]
    if len(numeric) > 1 and [first[i].strip() for i in numeric] == counted:  # as pandas names columns without names
        raise SpecError(
            f"{path}: line 1 counts {', '.join(first[i] for i in numeric[:3])}…: these may be column names or values",
            hint="set header = true or false in [data], or pass --header or --no-header to volumetric run",
        )
    return False


def _number(text: str, separator: str = ",") -> float | None:
    """Return the number of a cell. A comma of thousands and one of decimals cannot both be in a cell."""
    if separator == ";" and "." not in text:
        text = text.replace(",", ".", 1)
    try:
        return float(text)
    except ValueError:
        return None
