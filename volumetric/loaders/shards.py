"""Checkpoints of several safetensors files as one source: with an index, or a directory of shards."""

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

INDEX_NAME: Final = "model.safetensors.index.json"
MAX_INDEX_BYTES: Final = 100_000_000
MAX_NAME: Final = 255
"""Maximum characters of a file name on all common file systems."""
_SHARD = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<total>\d{5})\.(?P<suffix>safetensors|gguf)")


def merge_safetensors(paths: list[Path]) -> MergedSource:
    """Open several files as one. Raises `CheckpointError` if one is damaged or two share a tensor's name."""
    return MergedSource((path.name, SafetensorsFile(path)) for path in paths)


def open_safetensors(path: str | os.PathLike[str]) -> SafetensorsFile | MergedSource | NpzFile:
    """Open a file, an index, a directory with either of them or only shards, or a NumPy archive (``.npz``).

    In a directory ``model.safetensors.index.json`` has priority over ``model.safetensors``, and this over other shards.

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
    if path.suffix == ".npz":
        return NpzFile(path)
    return SafetensorsFile(path)


def _open_directory(path: Path) -> SafetensorsFile | MergedSource:
    if (path / INDEX_NAME).is_file():
        return _open_index(path / INDEX_NAME)
    if (path / "model.safetensors").is_file():
        return SafetensorsFile(path / "model.safetensors")
    files = sorted(path.glob("*.safetensors"))
    # Mistral's repositories contain the same weights again, under the names of Mistral's code.
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    if not files:
        raise CheckpointError(
            f"no safetensors file in {path}: {list_found(path)}", hint="only safetensors and GGUF can be read"
        )
    check_complete(files)
    return SafetensorsFile(files[0]) if len(files) == 1 else merge_safetensors(files)


def list_found(path: Path) -> str:
    """Describe a directory for error messages, including weight formats that are not read for safety."""
    try:
        names = sorted(item.name + ("/" if item.is_dir() else "") for item in path.iterdir())
    except OSError as error:
        return f"the directory cannot be read: {error.strerror or error}"
    if not names:
        return "the directory is empty"
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    pickles = [name for name in names if name.endswith(PICKLES)]
    note = " (.bin/.pt weights are pickles, which can run code when opened, and are not read)" if pickles else ""
    return f"found {shown}{note}"


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
    source = merge_safetensors([path.parent / shard for shard in shards])
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


PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Suffixes of pickle files, including torch's."""
_OTHERS: Final = {
    ".onnx": "an ONNX graph: onnx.numpy_helper reads its weights, and safetensors.numpy.save_file writes them",
    ".h5": "Keras' weights in HDF5: model.get_weights() reads them, and safetensors.numpy.save_file writes them",
    ".keras": "a Keras model: model.get_weights() reads its weights, and safetensors.numpy.save_file writes them",
    ".msgpack": "Flax' weights: flax.serialization reads them, and safetensors.flax.save_file writes them",
    ".npy": 'a single array without a name: np.savez("weights.npz", **{"fc.weight": array, …}) writes named arrays',
    ".tflite": "a TensorFlow Lite model, whose weights only its tools can read",
    ".mlmodel": "a Core ML model, whose weights only its tools can read",
    ".toml": "settings: use them with volumetric train or evolve",
    ".py": "Python code, which is not run: save the model's weights with safetensors.torch.save_file",
}


def no_model(path: Path) -> CheckpointError:
    """Return the error for a file that is not a model."""
    if path.suffix.lower() in PICKLES:
        return CheckpointError(
            f"{path} is a pickle, which can run code when opened, so it is never read",
            hint="if you trust it: state = torch.load(path, weights_only=True), then "
            "safetensors.torch.save_file(state, 'model.safetensors'); or find a .safetensors or .gguf file of "
            "the model",
        )
    known = _OTHERS.get(path.suffix.lower())
    if known is not None:
        return CheckpointError(f"{path} is not a model file", hint=f"it is {known}")
    return CheckpointError(
        f"{path} is not a model file", hint="give a .gguf, .safetensors, .npz or .json file, or a directory"
    )
