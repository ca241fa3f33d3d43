"""Checkpoints of one or several weight files as one source: with an index, or a directory of shards."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from volumetric.base.errors import CheckpointError
from volumetric.loaders.json_file import read_bytes
from volumetric.loaders.npz_file import NpzFile
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.tensor_source import MergedSource
from volumetric.loaders.torch_file import TorchFile, is_torch_name

INDEX_NAME: Final = "model.safetensors.index.json"
TORCH_INDEX: Final = "pytorch_model.bin.index.json"
MAX_INDEX_BYTES: Final = 100_000_000
MAX_NAME: Final = 255
"""Maximum characters of a file name on all common file systems."""
_SHARD = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<total>\d{5})\.(?P<suffix>safetensors|gguf|bin)")


def merge_files(paths: list[Path]) -> MergedSource:
    """Open several files as one. Raises `CheckpointError` if one is damaged or two share a tensor's name."""
    return MergedSource((path.name, _open_file(path)) for path in paths)


def open_safetensors(path: str | os.PathLike[str]) -> SafetensorsFile | MergedSource | NpzFile | TorchFile:
    """Open a file, an index, a directory with either of them or only shards.

    Files are safetensors, NumPy archives (``.npz``), or files of torch.save (``.pt``, ``.pth``, ``.bin``, ``.ckpt``).
    In a directory ``model.safetensors.index.json`` has priority over ``model.safetensors``, this over other shards, and
    safetensors over torch's files, which are the index, the file or the shards ``pytorch_model``, or a single file.

    Raises
    ------
    CheckpointError
        There is nothing to open (the message lists the files), a shard is missing, or a file is damaged.
    """
    path = Path(path)
    if path.is_dir():
        return _open_directory(path)
    if path.name.endswith(".index.json"):
        return _open_index(path)
    return _open_file(path)


def _open_file(path: Path) -> SafetensorsFile | NpzFile | TorchFile:
    if path.suffix == ".npz":
        return NpzFile(path)
    return TorchFile(path) if is_torch_name(path) else SafetensorsFile(path)


def has_weights(path: Path) -> bool:
    """Whether a directory has safetensors, or weights of torch.save under the usual names."""
    return (path / INDEX_NAME).is_file() or any(path.glob("*.safetensors")) or bool(_torch_files(path))


def _torch_files(path: Path) -> list[Path]:
    """Return torch's weight files of a directory: its index, ``pytorch_model.bin``, shards, or the only file."""
    for name in (TORCH_INDEX, "pytorch_model.bin"):
        if (path / name).is_file():
            return [path / name]
    files = sorted(path.glob("pytorch_model-*-of-*.bin"))
    if files:
        return files
    files = sorted(file for file in path.glob("*") if is_torch_name(file) and file.is_file())
    return files if len(files) == 1 else []


def _open_directory(path: Path) -> SafetensorsFile | MergedSource | NpzFile | TorchFile:
    if (path / INDEX_NAME).is_file():
        return _open_index(path / INDEX_NAME)
    if (path / "model.safetensors").is_file():
        return SafetensorsFile(path / "model.safetensors")
    files = sorted(path.glob("*.safetensors"))
    # Mistral's repositories contain the same weights again, under the names of Mistral's code.
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    files = files or _torch_files(path)
    if not files:
        raise CheckpointError(f"no weights in {path}: {list_found(path)}", hint=READABLE)
    if files[0].name == TORCH_INDEX:
        return _open_index(files[0])
    check_complete(files)
    return _open_file(files[0]) if len(files) == 1 else merge_files(files)


def list_found(path: Path) -> str:
    """Describe a directory for error messages."""
    try:
        names = sorted(item.name + ("/" if item.is_dir() else "") for item in path.iterdir())
    except OSError as error:
        return f"the directory cannot be read: {error.strerror or error}"
    if not names:
        return "the directory is empty"
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"found {shown}"


def check_complete(files: list[Path]) -> None:
    """Raise if the names contain ``-of-N`` and there are fewer than N parts."""
    parts: dict[tuple[str, int, str], set[int]] = {}
    for file in files:
        match = _SHARD.fullmatch(file.name)
        if match:
            parts.setdefault((match["stem"], int(match["total"]), match["suffix"]), set()).add(int(match["part"]))
    for (stem, total, suffix), present in parts.items():
        if len(present) < total:
            missing = next(part for part in range(1, total + 1) if part not in present)
            raise CheckpointError(
                f"{files[0].parent} has {len(present)} of {total} shards: "
                f"{stem}-{missing:05d}-of-{total:05d}.{suffix} is missing",
                hint="finish the download",
            )


def is_file(path: Path) -> bool:
    """Whether a file exists; False for invalid names, for which `Path.is_file` raises."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def parts_of(path: Path) -> list[Path]:
    """All files of the set of a file with a name ``…-00001-of-00003.…``; only the file itself if it is not a part.

    Raises
    ------
    CheckpointError
        One of them is missing.
    """
    match = _SHARD.fullmatch(path.name)
    if match is None:
        return [path]
    others = (
        path.with_name(f"{match['stem']}-{part:05d}-of-{match['total']}.{match['suffix']}")
        for part in range(1, int(match["total"]) + 1)
    )
    files = [file for file in others if file.is_file()]
    check_complete(files or [path])
    return files


def _open_index(path: Path) -> MergedSource:
    weight_map = read_weight_map(path)
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        # The index is untrusted: it must not lead to files elsewhere.
        if Path(shard).name != shard or shard in {"", ".", ".."} or len(shard) > MAX_NAME:
            raise CheckpointError(f"{path} lists the shard {shard[:MAX_NAME]!r}, which is not a plain file name")
        if not is_file(path.parent / shard):
            raise CheckpointError(f"{path} lists {shard!r}, which does not exist", hint="finish the download")
    source = merge_files([path.parent / shard for shard in shards])
    absent = [name for name in weight_map if name not in source.entries]
    if absent:
        shown = ", ".join(absent[:5])
        raise CheckpointError(f"{path} lists {len(absent)} tensors that are missing in the shards: {shown}")
    return source


def read_weight_map(path: Path) -> Mapping[str, str]:
    """Tensor name → shard of an index file. Raises `CheckpointError` if it is not an index."""
    try:
        index = json.loads(read_bytes(path, MAX_INDEX_BYTES))
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {str(error)[:200]}", hint="download the file again") from error
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CheckpointError(f"{path} has no weight_map from tensor names to file names")
    if not weight_map:
        raise CheckpointError(f"{path} lists no tensors")
    return weight_map


READABLE: Final = "safetensors, GGUF, .npz and torch's .pt, .pth, .bin and .ckpt files can be read"
PICKLES: Final = (".pkl", ".pickle", ".joblib")
"""Suffixes of pickles that are not those of torch.save."""
_OTHERS: Final = {
    ".onnx": "an ONNX graph: onnx.numpy_helper reads its weights, and safetensors.numpy.save_file writes them",
    ".h5": "Keras' weights in HDF5: model.get_weights() reads them, and safetensors.numpy.save_file writes them",
    ".keras": "a Keras model: model.get_weights() reads its weights, and safetensors.numpy.save_file writes them",
    ".msgpack": "Flax' weights: flax.serialization reads them, and safetensors.flax.save_file writes them",
    ".npy": 'a single array without a name: np.savez("weights.npz", **{"fc.weight": array, …}) writes named arrays',
    ".tflite": "a TensorFlow Lite model, whose weights only its tools can read",
    ".mlmodel": "a Core ML model, whose weights only its tools can read",
    ".toml": "settings: use them with volumetric train or evolve",
    ".csv": "a table: volumetric train learns from it, with csv = … in [data] of a TOML file",
    ".txt": "a text: volumetric train learns from it, with text = … in [data] of a TOML file",
    ".py": "Python code, which is not run: save the model's weights with safetensors.torch.save_file",
}


def no_model(path: Path) -> CheckpointError:
    """Return the error for a file that is not a model."""
    if path.suffix.lower() in PICKLES:
        return CheckpointError(
            f"{path} is a pickle, which can run code when opened, so it is never read",
            hint="write its weights with numpy.savez, safetensors, or torch.save(model.state_dict(), 'weights.pt')",
        )
    known = _OTHERS.get(path.suffix.lower())
    if known is not None:
        return CheckpointError(f"{path} is not a model file", hint=f"it is {known}")
    return CheckpointError(
        f"{path} is not a model file", hint="give a .gguf, .safetensors, .npz, .pt, .onnx or .json file, or a directory"
    )
