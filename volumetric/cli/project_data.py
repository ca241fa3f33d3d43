"""A project of ``volumetric new`` for a table or a text of the user."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from volumetric.base.errors import VolumetricError
from volumetric.base.hints import path_hint, suggestion
from volumetric.cli.exits import UsageError
from volumetric.cli.project_templates import README, Template, replace_line, with_introduction

if TYPE_CHECKING:
    from volumetric.train.csv_table import CsvTable

_CLASSES: Final = 20
"""Most different whole numbers in a target column that are taken for classes."""
_NUMBERS: Final = {
    "# Name the class of a row of numbers": "# Predict a number from a row of numbers",
    "The accuracy is that of the fifth of the samples that the network never learned from.": "The validation loss is "
    "the mean squared error on the fifth of the samples\nthat the network never learned from.",
    "`output` has a number for each class, the largest for the most probable one.": "Each line is a prediction.",
}
"""Sentences of the README about classes → the same about numbers."""
_SHOWN: Final = 3
"""Rows of the table that become the example of rows without an answer."""
_LEAST: Final = 10
"""Least samples of a table."""
_SHORTEST: Final = 2_000
"""Least characters of a text."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table to learn from.

    Attributes
    ----------
    cells : the table as text
    texts : columns that hold something else than numbers
    """

    cells: CsvTable
    texts: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Its file."""
        return self.cells.path

    @property
    def likely_target(self) -> str:
        """The only column of text, or else the last column."""
        return self.texts[0] if len(self.texts) == 1 else self.cells.columns[-1]

    def values(self, column: str) -> list[str]:
        """Return the cells of a column."""
        place = self.cells.columns.index(column)
        return [row[place] for row in self.cells.rows]

    def has_classes(self, target: str) -> bool:
        """Whether a target column holds classes: text, or a few whole numbers."""
        different = set(self.values(target))
        whole = all(value.strip().lstrip("+-").isdigit() for value in different)
        return target in self.texts or (whole and len(different) <= _CLASSES)


def read_table(path: Path) -> Table:
    """Read a CSV file and look at its columns.

    Raises
    ------
    UsageError : the file cannot be read, or has too few columns or rows
    """
    from volumetric.train.csv_table import read_csv

    try:
        cells = read_csv(path)
        cells.check_columns(range(len(cells.columns)))
    except VolumetricError as error:
        raise UsageError(str(error), hint=error.hint) from None
    if len(cells.columns) < 2 or len(cells.rows) < _LEAST:
        raise UsageError(
            f"{path} has {len(cells.columns)} columns and {len(cells.rows)} rows of values: too few to learn from",
            hint=f"a table needs a column for the answer, one or more with numbers, and at least {_LEAST} rows; "
            "values are separated by commas, semicolons or tabs",
        )
    texts = [
        name for place, name in enumerate(cells.columns) if any(cells.number(row[place]) is None for row in cells.rows)
    ]
    return Table(cells, tuple(texts))


def with_table(
    template: Template, files: Mapping[str, str], directory: Path, table: Table, target: str
) -> dict[str, str]:
    """Return the files of a project that learns a column of a table.

    Raises
    ------
    UsageError : there is no such column, another column holds text, or all answers are equal
    """
    columns = table.cells.columns
    if target not in columns:
        raise UsageError(f"{table.path} has no column {target!r}", hint=suggestion(target, columns))
    unread = [name for name in table.texts if name != target]
    if unread:
        text = next(value for value in table.values(unread[0]) if table.cells.number(value) is None)
        raise UsageError(
            f"{table.path}: the column {unread[0]!r} holds {text!r}, and a network reads numbers",
            hint=f"remove the column, or write it as numbers; --target {unread[0]} if it is the answer",
        )
    different = sorted(set(table.values(target)))
    if len(different) < 2:
        raise UsageError(
            f"{table.path}: the column {target!r} holds {different[0]!r} in all rows", hint="choose another"
        )
    classes, path = table.has_classes(target), _seen_from(directory, table.path)
    config = replace_line(files[template.config], "csv = ", f"csv = {_toml(path)}")
    config = replace_line(
        config, "columns = ", f"columns = [{_toml(target)}]                # the column with the answer"
    )
    header = "the first line has" if table.cells.header else "no line has"
    lines = f"header = {str(table.cells.header).lower()}                     # {header} the names of the columns\n"
    answer = "the answer is a name" if classes else "the answer is a number"
    lines += f"classes = {str(classes).lower()}                    # {answer}"
    config = replace_line(config, "classes = ", lines)
    features = [name for name in columns if name != target]
    named = ", ".join(features[:8]) + (", …" if len(features) > 8 else "")
    learns = f"the name in `{target}` ({len(different)} classes)" if classes else f"the number in `{target}`"
    introduction = (
        f"`{path}` has {len(table.cells.rows):,} samples with {len(features)} numbers each: {named}. A network learns\n"
        f"{learns}. Run the commands in this directory, in this order. Progress goes to stderr."
    )
    changed = {name: text for name, text in files.items() if name != "fruit.csv"}
    readme = with_introduction(files[README], introduction)
    if not classes:
        for named, number in _NUMBERS.items():
            readme = readme.replace(named, number)
    return {**changed, template.config: config, README: readme, "new.csv": _rows_without(table, target)}


def with_text(template: Template, files: Mapping[str, str], directory: Path, text: Path) -> dict[str, str]:
    """Return the files of a project that learns a text.

    Raises
    ------
    UsageError : the file cannot be read, or is too short
    """
    try:
        size = len(text.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {text}: {error.strerror or error}", hint=path_hint(text)) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{text} is not UTF-8 text: {error}", hint="save it as UTF-8") from None
    if size < _SHORTEST:
        raise UsageError(
            f"{text} has {size:,} characters: too few to learn from", hint=f"{_SHORTEST:,} or more are needed"
        )
    path = _seen_from(directory, text)
    introduction = (
        f"`{path}` has {size:,} characters. A small recurrent model learns to continue them. Run the commands in this\n"
        "directory, in this order. Progress goes to stderr."
    )
    changed = {name: content for name, content in files.items() if name != "text.txt"}
    config = replace_line(files[template.config], "text = ", f"text = {_toml(path)}")
    return {**changed, template.config: config, README: with_introduction(files[README], introduction)}


def _seen_from(directory: Path, path: Path) -> str:
    """Return a path as a file in `directory` names it."""
    try:
        return Path(os.path.relpath(path.resolve(), directory.resolve())).as_posix()
    except ValueError:  # another drive of Windows
        return path.resolve().as_posix()


def _toml(text: str) -> str:
    """Return a basic string of TOML."""
    import json

    return json.dumps(text, ensure_ascii=False)


def _rows_without(table: Table, target: str) -> str:
    """Return the first rows as the file has them, without the answer."""
    place = table.cells.columns.index(target)
    rows: list[Sequence[str]] = [table.cells.columns] if table.cells.header else []
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", delimiter=table.cells.separator)
    writer.writerows([*row[:place], *row[place + 1 :]] for row in [*rows, *table.cells.rows[:_SHOWN]])
    return out.getvalue()
