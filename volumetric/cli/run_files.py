"""Reads files of rows into arrays by the inputs of a network."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError
from volumetric.cli.exits import UsageError
from volumetric.cli.run_rows import RESET, inputs_of
from volumetric.loaders import LoadedModel
from volumetric.network import INPUT, Network
from volumetric.network.grid import Port
from volumetric.train.csv_table import read_csv
from volumetric.train.image_folders import IMAGE_SUFFIXES, read_image
from volumetric.train.load_samples import read_npy
from volumetric.train.npz_arrays import is_part, read_npz
from volumetric.train.stream_windows import RESETS
from volumetric.train.table_objects import read_parquet
from volumetric.train.wav_files import fit_sound, read_wav

_INPUTS: Final = "inputs"
_NOT_READ: Final = ("targets", "target", "mask")


def npz_arrays(path: Path, network: Network, afresh: bool) -> dict[str, Array]:
    """Read the arrays of an ``.npz`` file: by input, or in the format of training data.

    From a file with arrays ``inputs``, ``inputs.NAME`` or with targets, the inputs are read; targets and masks are
    ignored.

    Parameters
    ----------
    afresh : reset the stream at each row if samples of training are single, independent rows

    Raises
    ------
    CheckpointError : the file cannot be read
    UsageError : an input has two arrays
    """
    arrays, ports = read_npz(path), inputs_of(network)
    if not any(name not in ports and is_part(name, _INPUTS, *_NOT_READ) for name in arrays):
        return arrays
    inputs: dict[str, Array] = {}
    for name, array in arrays.items():
        if name not in ports and is_part(name, *_NOT_READ):
            continue
        plain = name not in ports and is_part(name, _INPUTS)
        of = (name.partition(".")[2] or INPUT) if plain else name
        of = RESET if plain and of == RESETS and RESETS not in ports else of
        if of in inputs:
            raise UsageError(f"{path} has two arrays for the input {of!r}", hint="remove one of them")
        inputs[of] = _as_learned(array, ports[of].shape) if plain and of in ports else array
    first = next((name for name in ports if name in inputs), None)
    if afresh and first is not None and inputs[first].ndim == 1 + len(ports[first].shape):
        return _marked(inputs, len(inputs[first]), network)
    return inputs


def _marked(arrays: dict[str, Array], rows: int, network: Network) -> dict[str, Array]:
    """Reset the stream at each row, unless the file has resets."""
    if RESET in arrays or RESET in inputs_of(network):
        return arrays
    return {**arrays, RESET: np.ones(rows, np.int64)}


def _as_learned(array: Array, shape: tuple[int, ...]) -> Array:
    """Reshape samples to the shape of a row, if only that differs, as training does."""
    if array.shape[1:] == shape or array.shape[2:] == shape or array.ndim < 1 or prod(array.shape[1:]) != prod(shape):
        return array
    return array.reshape(len(array), *shape)


TABLES: Final = (".csv", ".parquet")
MEDIA: Final = (*IMAGE_SUFFIXES, ".wav")


def file_arrays(path: Path, loaded: LoadedModel, header: bool | None, afresh: bool) -> dict[str, Array]:
    """Read rows from a file or folder by its suffix, see `npz_arrays`, `table_arrays` and `media_arrays`.

    Raises
    ------
    VolumetricError : it cannot be read, or has no rows of the network
    """
    if path.suffix in TABLES:
        return table_arrays(path, loaded, header, afresh)
    if path.suffix == ".npz":
        return npz_arrays(path, loaded.network, afresh)
    if path.suffix == ".npy":
        x = _as_learned(read_npy(path), _single_port(path, loaded).shape)
        single = x.ndim == 1 + len(_single_port(path, loaded).shape)
        return _marked({INPUT: x}, len(x), loaded.network) if afresh and single else {INPUT: x}
    return media_arrays(path, loaded, afresh)


def media_arrays(path: Path, loaded: LoadedModel, afresh: bool) -> dict[str, Array]:
    """Read an image or a WAV file, or all of a folder and its folders, sorted, in the size of the network's input.

    Raises
    ------
    UsageError : the network reads no images or sounds, or the folder has none
    VolumetricError : see `read_image` and `read_wav`
    """
    shape = _single_port(path, loaded).shape
    files = media_files(path) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path} has no images or WAV files", hint=f"they end in {', '.join(MEDIA)}")
    x = np.stack([_sound(file, shape) if file.suffix.lower() == ".wav" else _image(file, shape) for file in files])
    return _marked({INPUT: x}, len(x), loaded.network) if afresh else {INPUT: x}


def media_files(folder: Path) -> list[Path]:
    """Return the images and WAV files of a folder and its folders, in the order in which they are run."""
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in MEDIA and file.is_file())


def _image(path: Path, shape: tuple[int, ...]) -> Array:
    if len(shape) != 3 or shape[0] not in (1, 3, 4):
        raise UsageError(f"{path}: the network reads rows of shape {list(shape)}, not images [channels, height, width]")
    return read_image(path, shape[1:], shape[0])


def _sound(path: Path, shape: tuple[int, ...]) -> Array:
    if len(shape) not in (1, 2):
        raise UsageError(f"{path}: the network reads rows of shape {list(shape)}, not sounds")
    sound, _ = read_wav(path)
    return fit_sound(sound, shape[-1], shape[0] if len(shape) == 2 else 1, path).reshape(shape)


def _single_port(path: Path, loaded: LoadedModel) -> Port:
    port = inputs_of(loaded.network).get(INPUT)
    if port is None:
        known = ", ".join(map(repr, inputs_of(loaded.network)))
        raise UsageError(f"{path} has rows of one input, the network has {known}", hint="pass an .npz file")
    return port


def table_arrays(
    path: Path, loaded: LoadedModel, header: bool | None, afresh: bool, text: str | None = None
) -> dict[str, Array]:
    """Read the rows of a CSV or Parquet file: the columns that the model was trained on, by name, else all columns.

    Parameters
    ----------
    header, text : see `read_csv`
    afresh : reset the stream at each row if the model was trained on a table, whose rows are independent

    Raises
    ------
    CheckpointError : the file cannot be read, or contains text
    SpecError : it lacks a column
    UsageError : the network does not have a single input with as many numbers
    """
    port = _single_port(path, loaded)
    table = read_parquet(path) if path.suffix == ".parquet" else read_csv(path, header, text)
    size = prod(port.shape)
    if not loaded.features and len(table.columns) != size:
        raise UsageError(
            f"{path} has {len(table.columns)} columns, the network reads {size} numbers",
            hint="leave out columns that are not inputs; models trained on a table select columns by name",
        )
    x = table.numbers(table.positions(loaded.features or table.columns))
    if port.dtype == "int32":
        if (x != np.floor(x)).any():
            raise CheckpointError(f"{path}: the network reads ids, which must be whole numbers")
        x = x.astype(np.int64)
    arrays = {INPUT: x.reshape(len(x), *port.shape)}
    return _marked(arrays, len(x), loaded.network) if afresh and loaded.features else arrays
