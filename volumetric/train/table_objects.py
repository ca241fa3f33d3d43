"""Tables of other libraries: Parquet files, and objects of pandas, polars, pyarrow and Hugging Face's datasets.

Objects are recognised by their methods, so none of the libraries is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.base.hints import path_hint
from volumetric.train.sample_table import ColumnTable

EXTRA: Final = "pip install 'volumetric-engine[data]'"


class DataTable(Protocol):
    """A table of pandas, polars, pyarrow or Hugging Face's datasets, for type checkers."""

    def __getitem__(self, key: Any, /) -> Any:
        """Return a column, or rows."""
        ...

    def __len__(self) -> int: ...


def is_table(value: Any) -> bool:
    """Whether an object is a table: it has columns, by name."""
    named = hasattr(value, "column_names") or (hasattr(value, "columns") and hasattr(value, "dtypes"))
    return named and not isinstance(value, type) and hasattr(value, "__getitem__")


def read_table_object(value: Any) -> ColumnTable:
    """Return the columns of a DataFrame, a pyarrow table, or a dataset of Hugging Face.

    Columns of categories, of dictionaries and of ``ClassLabel`` keep the names of their classes. A column ``Image`` of
    a dataset becomes ``[rows, channels, height, width]`` with values 0 … 1, and a column ``Audio`` ``[rows, samples]``.

    Raises
    ------
    SpecError
        It has columns of something else than numbers, texts and arrays of equal sizes.
    """
    if isinstance(value, Mapping):
        splits = ", ".join(map(repr, value))
        raise SpecError(f"a dataset of several splits: {splits}", hint=f"pass one of them, data[{next(iter(value))!r}]")
    if hasattr(value, "features") and hasattr(value, "with_format"):
        return _of_dataset(value)
    source = f"the {type(value).__module__.partition('.')[0]} table"
    names_of = [*(value.column_names if hasattr(value, "column_names") else value.columns)]
    twice = next((name for i, name in enumerate(map(str, names_of)) if name in map(str, names_of[:i])), None)
    if twice is not None:
        raise SpecError(f"{source} has two columns {twice!r}", hint="give each column a unique name")
    arrow = hasattr(value, "column_names") and hasattr(value, "column")
    columns = {str(name): value.column(name) if arrow else value[name] for name in names_of}
    arrays: dict[str, Array] = {}
    names: dict[str, tuple[str, ...]] = {}
    for name, column in columns.items():
        categories = getattr(getattr(column, "cat", None), "categories", None)
        if categories is not None and hasattr(column, "cat") and hasattr(column.cat, "codes"):
            arrays[name] = np.asarray(column.cat.codes)
            names[name] = tuple(map(str, categories))
            if (arrays[name] < 0).any():
                raise SpecError(f"{source}: column {name!r} has rows without a category", hint="fill or remove them")
            continue
        arrays[name] = _as_column(_values(column), name, source)
    return ColumnTable(source=source, arrays=arrays, names=names)


def feature_rows(value: Any, features: Sequence[str]) -> Any:
    """Return the columns of a table that a model was trained on, chosen by name, as rows; other values as they are.

    Raises
    ------
    SpecError : the table lacks a column
    """
    if not features or not is_table(value):
        return value
    table = read_table_object(value)
    return table.numbers(table.positions(features))


def read_parquet(path: Path) -> ColumnTable:
    """Read a Parquet file by pyarrow.

    Raises
    ------
    UnsupportedError : pyarrow is not installed
    CheckpointError : the file cannot be read
    """
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UnsupportedError(f"{path}: Parquet files need pyarrow, which is not installed", hint=EXTRA) from None
    try:
        table = read_table_object(parquet.read_table(str(path)))
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise CheckpointError(f"cannot read {path}: {reason}", hint=path_hint(path)) from None
    except ValueError as error:  # pyarrow's ArrowInvalid
        if isinstance(error, SpecError):
            raise
        raise CheckpointError(f"{path} is no Parquet file: {str(error).splitlines()[0][:200]}") from None
    return ColumnTable(source=str(path), arrays=table.arrays, names=table.names)


def _of_dataset(value: Any) -> ColumnTable:
    """Return the columns of a dataset of Hugging Face, by its features."""
    source, features = "the dataset", value.features
    rows = value.with_format("numpy")[:]
    arrays: dict[str, Array] = {}
    classes: dict[str, tuple[str, ...]] = {}
    for name, column in rows.items():
        feature = features.get(name) if features is not None else None
        kind, labels = type(feature).__name__, getattr(feature, "names", None)
        array = _as_column(column, name, source)
        if kind == "Image":
            array = _as_images(array, name, source)
        arrays[str(name)] = array
        if labels is not None:
            classes[str(name)] = tuple(map(str, labels))
    return ColumnTable(source=source, arrays=arrays, names=classes)


def _values(column: Any) -> Any:
    """Return the values of a column of any library."""
    if hasattr(column, "to_numpy"):
        try:
            return column.to_numpy()
        except (TypeError, ValueError, NotImplementedError):
            pass
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def _as_column(values: Any, name: str, source: str) -> Array:
    """Return an array of numbers or texts; arrays of equal sizes are stacked."""
    array = values if isinstance(values, np.ndarray) else None
    if array is None:
        try:
            array = np.asarray(values)
        except ValueError:  # ragged
            array = np.empty(len(values), object)
            array[:] = list(values)
    if array.dtype != object:
        return array
    items: list[Any] = [item["array"] if isinstance(item, dict) and "array" in item else item for item in array]
    if any(item is None for item in items):
        row = next(i for i, item in enumerate(items) if item is None)
        raise SpecError(f"{source}: row {row}, column {name!r} has no value", hint="fill or remove such rows")
    if all(isinstance(item, (str, bool, int, float, np.generic)) for item in items):
        return np.array(items) if not any(isinstance(item, str) for item in items) else array
    try:
        stacked = np.stack([_as_column(item, name, source) if _nested(item) else np.asarray(item) for item in items])
    except ValueError:
        shapes = sorted({str(list(np.shape(item))) for item in items})[:4]
        raise SpecError(
            f"{source}: the arrays of column {name!r} have unequal shapes, such as {', '.join(shapes)}",
            hint="bring them to one shape, or leave the column out",
        ) from None
    if stacked.dtype == object:
        raise SpecError(f"{source}: column {name!r} holds {type(items[0]).__name__}", hint="leave the column out")
    return stacked


def _nested(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype == object


def _as_images(array: Array, name: str, source: str) -> Array:
    """Return images channels first, with values 0 … 1."""
    if array.ndim not in (3, 4) or array.dtype != np.uint8:
        raise SpecError(f"{source}: column {name!r} has no images of 8 bits, but {array.dtype} {list(array.shape)}")
    pixels = array[:, None] if array.ndim == 3 else np.moveaxis(array, -1, 1)
    return pixels.astype(np.float32) / 255
