"""Samples from files, folders and tables of other libraries, in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import path_hint
from volumetric.train.csv_table import read_csv
from volumetric.train.problems import Problem
from volumetric.train.sample_table import problem_of_table
from volumetric.train.table_objects import is_table, read_parquet, read_table_object


def load_samples(
    source: Any,
    *,
    targets: str | Sequence[str] = (),
    classes: bool | None = None,
    features: Sequence[str] = (),
    known: Sequence[str] = (),
    header: bool | None = None,
    size: Sequence[int] = (),
    channels: int | None = None,
    rate: int = 0,
    samples: int = 0,
) -> Problem:
    """Read samples, which `train` accepts as data.

    Parameters
    ----------
    source : a ``.csv`` or ``.parquet`` file; a folder with a folder of images or of WAV files for each class; a
        DataFrame of pandas or polars, a table of pyarrow, or a dataset of Hugging Face
    targets : tables: column or columns of the targets; default: the last one
    classes : tables: whether the target column has classes; default: it has if it holds texts or knows their names
    features : tables: columns of the inputs; default: all others
    known : names of the classes in order, as of a model that was trained; default: those of the data
    header : CSV: see `read_csv`
    size, channels : images: see `read_image_folder`; default: their own size, 3 channels
    rate, samples, channels : sounds: see `read_wav_folder`; default: 1 channel

    Returns
    -------
    Problem
        Its inputs, targets, names of classes and of columns.

    Raises
    ------
    SpecError, CheckpointError, UnsupportedError
        The source is nothing of these, cannot be read, or needs a library that is not installed.
    """
    columns = (targets,) if isinstance(targets, str) else tuple(targets)
    table = None
    if is_table(source) or _is_splits(source):
        table = read_table_object(source)
    elif not isinstance(source, (str, os.PathLike)):
        raise SpecError(
            f"cannot read samples from {type(source).__name__}",
            hint="pass a path, a DataFrame, a table of pyarrow or a dataset of Hugging Face",
        )
    else:
        path = Path(os.fspath(source)).expanduser()
        if path.suffix == ".csv":
            table = read_csv(path, header)
        elif path.suffix in (".parquet", ".pq"):
            table = read_parquet(path)
        elif path.is_dir():
            return _of_folder(path, known, size, channels, rate, samples)
        elif not path.exists():
            raise CheckpointError(f"cannot read {path}: there is no such file", hint=path_hint(path))
        else:
            raise SpecError(
                f"{path}: samples are not read from {path.suffix or 'such'} files",
                hint="CSV, Parquet and .npz files, and folders of images or WAV files by class are read",
            )
    return problem_of_table(table, columns, classes=classes, features=features, known=known)


def _is_splits(source: Any) -> bool:
    """Whether `source` is a dictionary of datasets, by split."""
    return isinstance(source, dict) and bool(source) and all(map(is_table, source.values()))


def _of_folder(
    path: Path, known: Sequence[str], size: Sequence[int], channels: int | None, rate: int, samples: int
) -> Problem:
    from volumetric.train.image_folders import IMAGE_SUFFIXES, read_image_folder
    from volumetric.train.wav_files import read_wav_folder

    suffixes = {file.suffix.lower() for file in path.rglob("*") if file.is_file()}
    sound, image = ".wav" in suffixes, not suffixes.isdisjoint(IMAGE_SUFFIXES)
    if sound and image:
        raise SpecError(f"{path} has images and WAV files", hint="[data] images or audio says which to read")
    if sound:
        return read_wav_folder(path, rate=rate, samples=samples, channels=channels or 1, known=known)
    return read_image_folder(path, size, channels or 3, known)


def read_npy(path: Path) -> np.ndarray:
    """Read an array of a ``.npy`` file. Raises `CheckpointError` if it is damaged, or has Python objects."""
    try:
        with path.open("rb") as handle:
            return np.lib.format.read_array(handle, allow_pickle=False, max_header_size=10_000)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", hint=path_hint(path)) from None
    except (ValueError, EOFError, TypeError, SyntaxError, OverflowError, MemoryError) as error:
        raise CheckpointError(
            f"cannot read {path}: it is no whole .npy file of numbers: {str(error)[:120]}",
            hint="numpy.save(path, array) writes one",
        ) from None
