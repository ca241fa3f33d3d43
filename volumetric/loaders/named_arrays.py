"""Weight files as plain arrays by name, and back: what a network is does not matter here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.dtypes import decode
from volumetric.loaders.npz_file import NpzFile
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.safetensors_write import array_out, write_safetensors
from volumetric.loaders.shards import open_safetensors
from volumetric.loaders.tensor_source import MergedSource
from volumetric.loaders.torch_file import TorchFile, is_torch_name
from volumetric.network.weight_store import WeightStore

ARRAY_FILES: Final = (".npz", ".safetensors")
"""Suffixes of the files that `save_arrays` writes."""


def read_arrays(path: str | os.PathLike[str], *, part: str = "") -> dict[str, Array]:
    """Read all tensors of a weight file, or of a directory of them, as arrays by name.

    Parameters
    ----------
    path : ``.safetensors``, ``.npz``, a file of torch.save (``.pt``, ``.pth``, ``.bin``, ``.ckpt``), an index, or
        a directory; torch's files are read without torch, and run no code
    part : for a file of torch.save: the entry with the tensors, ``"model_state_dict"`` or ``"ema.shadow"``; default:
        the state dict, see docs/data.md

    Returns
    -------
    Arrays in file order. bfloat16 and the float types of 8 bits have the dtypes of ml_dtypes

    Raises
    ------
    CheckpointError
        The file does not exist, is damaged, or holds more than tensors.
    """
    place = Path(path)
    if not place.exists():
        raise CheckpointError(f"there is no file {place}", hint=f"the current directory is {Path.cwd()}")
    if part and not is_torch_name(place):
        raise SpecError(f"{place} has no parts, got part={part!r}", hint="only files of torch.save have parts")
    source = TorchFile(place, part) if part else open_safetensors(place)
    arrays: dict[str, Array] = {}
    for name, entry in source.entries.items():
        file = source.part_of(name) if isinstance(source, MergedSource) else source
        plain = isinstance(file, (SafetensorsFile, NpzFile, TorchFile))
        arrays[name] = np.array(file.array(name) if plain else decode(file.packed(name)).reshape(entry.shape))
    return arrays


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write arrays by name to an ``.npz`` or ``.safetensors`` file, atomically.

    Parameters
    ----------
    arrays : name → array, or → `WeightStore`, as a network's parameters: codes of quantised weights are decoded to
        float32. In an ``.npz`` file, which knows only NumPy's own types, bfloat16 and float8 become float32

    Raises
    ------
    UnsupportedError
        The suffix is another one.
    CheckpointError
        A type cannot be written, or the file cannot.
    """
    target = Path(path)
    if target.suffix not in ARRAY_FILES:
        raise UnsupportedError(
            f"{target}: arrays are written to .npz and .safetensors files", hint=f"name it {target.stem}.safetensors"
        )
    plain = {name: _plain(value) for name, value in arrays.items()}
    if target.suffix == ".safetensors":
        write_safetensors(target, {name: array_out(array) for name, array in plain.items()})
        return
    clash = next((name for name in plain if name in ("file", "allow_pickle")), None)
    if clash is not None:
        raise CheckpointError(f"an array cannot be named {clash!r} in an .npz file", hint="write a .safetensors file")
    own = {name: a.astype(np.float32) if _is_extended(a.dtype) else a for name, a in plain.items()}
    with atomic_file(target) as handle:
        np.savez(handle, allow_pickle=False, **own)


def convert_arrays(source: str, target: str | os.PathLike[str]) -> int | None:
    """Copy the tensors of weights without a configuration to another file, under their names.

    Returns
    -------
    The number of tensors; None if `source` is no such file, but a model

    Raises
    ------
    CheckpointError, UnsupportedError
        The source cannot be read, or the target cannot be written.
    """
    place = Path(source)
    bare = place.is_file() and (place.suffix in ARRAY_FILES or is_torch_name(place))
    if not bare or any(place.with_name(name).is_file() for name in ("config.json", "network.json")):
        return None
    arrays = read_arrays(place)
    save_arrays(target, arrays)
    return len(arrays)


def as_array(value: Any) -> Array:
    """Return an array from an array, a nested list, or a tensor of torch, jax or mlx.

    Raises
    ------
    TypeError, ValueError
        It is not an array of numbers.
    """
    for method in ("detach", "cpu"):  # a tensor of torch that needs a gradient, or lives on a device, has no array
        value = getattr(value, method)() if hasattr(value, method) else value
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # NumPy has no such type
        value = value.float()
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" and not _is_extended(array.dtype):
        raise TypeError(f"expected an array of numbers, got {array.dtype}")
    return array


def _is_extended(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is one of ml_dtypes."""
    return dtype.type.__module__.startswith("ml_dtypes")


def _plain(value: Any) -> Array:
    if not isinstance(value, WeightStore):
        return as_array(value)
    packed = value.packed()
    dtype = packed.scheme.dtype
    floats = dtype.is_float and dtype.bits >= 16 and packed.scales is None
    return decode(packed, dtype.host if floats else np.float32).reshape(value.shape)
