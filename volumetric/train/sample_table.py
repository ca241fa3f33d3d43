"""Tables of samples: named columns of text or numbers, whatever they were read from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import suggestion
from volumetric.train.problems import Problem

_MOST_MEASURED: Final = 20
"""Most different numbers with decimals that may be names of classes."""


class SampleTable(ABC):
    """Rows of named columns.

    Attributes
    ----------
    name : for errors: a path, or a kind of object
    columns : names of the columns
    """

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def numbers(self, positions: Sequence[int]) -> Array:
        """Return columns as float32 ``[rows, columns]``, or one column of arrays as ``[rows, …]``.

        Raises
        ------
        CheckpointError : a value is not a finite number; the message has its row and column
        """

    @abstractmethod
    def labels(self, position: int) -> list[str]:
        """Return a column as texts."""

    def place(self, row: int) -> str:
        """Return where a row is, for errors."""
        return f"row {row}"

    def class_names(self, position: int) -> tuple[str, ...]:
        """Return the names of the classes of a column, in order, if the table knows them."""
        return ()

    def positions(self, names: Sequence[str]) -> list[int]:
        """Return the positions of columns. Raises `SpecError` if one is missing."""
        missing = next((name for name in names if name not in self.columns), None)
        if missing is not None:
            raise SpecError(f"{self.name} has no column {missing!r}; {self.describe()}", hint=self.hint(missing))
        return [self.columns.index(name) for name in names]

    def expect_samples(self, targets: Sequence[str]) -> None:
        """Raise `SpecError` unless there are rows, and columns other than the targets."""
        self.positions(targets)
        if not len(self) or len(targets) >= len(self.columns):
            what = "no columns other than the targets" if len(self) else "no samples"
            raise SpecError(f"{self.name} has {what}; {self.describe()}", hint=self.hint(""))

    def describe(self) -> str:
        """Return the columns as text."""
        shown = ", ".join(self.columns[:12]) + (", …" if len(self.columns) > 12 else "")
        return f"its columns are {shown or 'none'}"

    def hint(self, missing: str) -> str:
        """Return what to do about a missing column."""
        return suggestion(missing, self.columns, "name columns as the table does", most=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTable(SampleTable):
    """A table whose columns are arrays.

    Attributes
    ----------
    arrays : column → numbers ``[rows, …]`` or texts ``[rows]``
    names : column of ids → names of its classes
    """

    source: str
    arrays: Mapping[str, Array]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that all columns have the same length."""
        sizes = {name: len(array) for name, array in self.arrays.items()}
        if len(set(sizes.values())) > 1:
            raise SpecError(f"{self.source}: columns have unequal lengths: {sizes}", hint="a row is one sample")

    @property
    def name(self) -> str:
        return self.source

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.arrays)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values()), ()))

    def numbers(self, positions: Sequence[int]) -> Array:
        arrays = [self._column(self.columns[i]) for i in positions]
        wide = [self.columns[i] for i, array in zip(positions, arrays, strict=True) if array.ndim > 1]
        if wide and len(arrays) > 1:
            raise SpecError(
                f"{self.source}: column {wide[0]!r} has an array in each row, and cannot stand beside other columns",
                hint="leave the other columns out of the table",
            )
        return arrays[0] if wide else np.stack(arrays, axis=1) if arrays else np.empty((len(self), 0), np.float32)

    def labels(self, position: int) -> list[str]:
        name = self.columns[position]
        array, names = self.arrays[name], self.names.get(name, ())
        if array.ndim != 1 or array.dtype.kind == "f":
            raise SpecError(f"{self.source}: column {name!r} has no classes, but {array.dtype}", hint="classes = false")
        if names:
            odd = next((int(i) for i in array if not 0 <= int(i) < len(names)), None)
            if odd is not None:
                raise CheckpointError(f"{self.source}: column {name!r} has the class {odd}, which has no name")
            return [names[int(i)] for i in array]
        return [str(value) for value in array.tolist()]

    def class_names(self, position: int) -> tuple[str, ...]:
        return self.names.get(self.columns[position], ())

    def _column(self, name: str) -> Array:
        array = self.arrays[name]
        if array.dtype.kind not in "biuf":
            value = next(iter(array.ravel().tolist()), "")
            raise CheckpointError(
                f"{self.source}: column {name!r} is no column of numbers: {str(value)[:40]!r}",
                hint="set classes = true for classes by name, or leave the column out",
            )
        with np.errstate(over="ignore"):
            numbers = array.astype(np.float32)
        if not np.isfinite(numbers).all():
            row = int(np.argwhere(~np.isfinite(numbers))[0][0])
            raise CheckpointError(
                f"{self.source}: row {row}, column {name!r} is not finite", hint="fill or remove rows without a value"
            )
        return numbers


def problem_of_table(
    table: SampleTable,
    targets: Sequence[str] = (),
    *,
    classes: bool | None = False,
    features: Sequence[str] = (),
    known: Sequence[str] = (),
) -> Problem:
    """Return the samples of a table.

    Parameters
    ----------
    targets : columns of the targets (empty: the last one)
    classes : whether the target column has classes; None: it has if it has texts, or knows their names
    features : columns of the inputs (empty: all others)
    known : names of the classes, in order (empty: those of the table, or sorted)

    Raises
    ------
    SpecError, CheckpointError
        A column is missing, or does not have such values.
    """
    names = tuple(targets) or table.columns[-1:]
    table.expect_samples(names)
    at = table.positions(names)
    others = table.positions(features) if features else [i for i in range(len(table.columns)) if i not in at]
    if classes is None:
        classes = len(at) == 1 and (bool(table.class_names(at[0])) or _is_text(table, at[0]))
    inputs = table.numbers(others)
    features = tuple(features) or tuple(table.columns[i] for i in others)
    shape = inputs.shape[1:] if inputs.ndim > 2 else ()
    if not classes:
        return Problem(inputs=inputs, targets=table.numbers(at), features=features, shape=shape)
    if len(at) > 1:
        raise SpecError(f"[data] classes must be in one column, got {', '.join(names)}")
    labels = table.labels(at[0])
    _check_labels(table, at[0], labels)
    order = tuple(known) or table.class_names(at[0]) or tuple(sorted(set(labels)))
    number = {name: i for i, name in enumerate(order)}
    odd = next((label for label in labels if label not in number), None)
    if odd is not None:
        raise SpecError(
            f"{table.name}: class {odd!r} is not in the training data", hint=f"the classes are {', '.join(order)}"
        )
    ids = np.array([number[label] for label in labels])
    return Problem(inputs=inputs, targets=ids, classes=order, features=features, shape=shape)


def _check_labels(table: SampleTable, position: int, labels: Sequence[str]) -> None:
    """Raise `CheckpointError` for a row without a class, and `SpecError` for numbers that are no classes."""
    column = table.columns[position]
    blank = next((row for row, label in enumerate(labels) if not label.strip()), None)
    if blank is not None:
        raise CheckpointError(
            f"{table.name}: {table.place(blank)}, column {column!r}: the class is missing",
            hint="fill in the cell, or remove the row",
        )
    different = set(labels)
    if len(different) > _MOST_MEASURED and all("." in label and _is_number(label) for label in different):
        raise SpecError(
            f"{table.name}: column {column!r} has {len(different)} different numbers with decimals, not classes",
            hint="set classes = false to predict the number",
        )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_text(table: SampleTable, position: int) -> bool:
    """Whether a column has a text that is no number."""
    if isinstance(table, ColumnTable):
        return table.arrays[table.columns[position]].dtype.kind in "OUSb"
    return not all(map(_is_number, table.labels(position)))
