"""Ways to damage files: bytes that are flipped, cut, repeated or overwritten, and values that are odd.

Flipped bytes mostly end at a reader's first check. So headers of safetensors, metadata of GGUF files and JSON texts are
also taken apart and written again with other values, as files whose form is right and whose content is not.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_types import GGUF_TYPES
from volumetric.loaders.gguf_values import LazyStrings
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf


def damage(path: Path, rng: random.Random) -> None:
    """Damage a file, in seven of ten cases with respect to its form."""
    data = bytearray(path.read_bytes())
    if rng.random() >= 0.7 or path.suffix not in (".json", ".safetensors", ".gguf"):
        path.write_bytes(byte_damage(data, rng))
    elif path.suffix == ".json":
        path.write_bytes(json_damage(data, rng))
    elif path.suffix == ".safetensors":
        size = int.from_bytes(data[:8], "little")
        header = json_damage(data[8 : 8 + size], rng)
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])
    else:
        gguf_damage(path, rng)


def byte_damage(data: bytearray, rng: random.Random) -> bytes:
    """Flip, cut, repeat or overwrite bytes; half of the time near the start, where lengths and names are."""
    for _ in range(rng.choice((1, 1, 2, 8))):
        reach = min(len(data), rng.choice((64, 4096, len(data)))) or 1
        at, length = rng.randrange(reach), rng.choice((1, 1, 2, 4, 8, 64))
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([data[at] ^ 1 << rng.randrange(8)]) if data else b"x"
            case 1:
                data[at : at + length] = rng.randbytes(length)
            case 2:
                del data[at : at + length]
            case 3:
                data[at:at] = data[at : at + length] * rng.choice((1, 2, 100))
            case 4:
                data[at : at + 8] = rng.choice((0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)).to_bytes(8, "little")
            case _:
                del data[rng.randrange(len(data) + 1) :]
    return bytes(data)


ODD: tuple[Any, ...] = (
    None,
    0,
    -1,
    1,
    4096,
    2**31,
    2**63,
    10**30,
    1e308,
    float("nan"),
    True,
    "",
    "x",
    "\ud800",
    "a" * 5000,
)
ODD += ([], {}, [[]], [1], {"a": 1}, "../x", "9" * 5000, "\0")


def json_damage(data: bytearray, rng: random.Random) -> bytes:
    """Replace, delete, rename or repeat values of a JSON text."""
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            break
        where, key = rng.choice(places)
        match rng.randrange(5):
            case 0 | 1:
                where[key] = rng.choice(ODD)
            case 2:
                del where[key]
            case 3:
                other, name = rng.choice(places)
                where[key] = other.get(name) if isinstance(other, dict) else other[name] if name < len(other) else None
            case _:
                if isinstance(where, dict):
                    where[str(rng.choice(ODD))] = where.pop(key)
                else:
                    where.extend(where[:50] * 3)
    try:
        return json.dumps(value).encode()
    except (ValueError, RecursionError):  # a value that holds itself
        return b"{}"


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Containers and keys of a JSON value, no more than some of each container."""
    keys = list(value)[:40] if isinstance(value, dict) else range(min(len(value), 8)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        if depth < 6:
            yield from _places(value[key], depth + 1)


def gguf_damage(path: Path, rng: random.Random) -> None:
    """Replace, delete or rename metadata and tensors of a GGUF file."""
    file = GGUFFile(path)
    metadata = {key: _written(value) for key, value in file.metadata.items()}
    tensors = {
        name: _tensor(entry.type, entry.shape, file.raw(name).copy())  # the file itself is overwritten
        for name, entry in file.entries.items()
    }
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.3 and tensors:
            _swap(tensors, rng)
            continue
        key = rng.choice(list(metadata))
        value = metadata[key]
        match rng.randrange(4):
            case 0:
                del metadata[key]
            case 1:
                metadata[key] = metadata[rng.choice(list(metadata))]
            case 2 if isinstance(value, (list, np.ndarray)) and len(value):
                metadata[key] = _list_damage(value, rng)
            case _:
                metadata[key] = rng.choice(ODD_METADATA)
    write_gguf(path, metadata, tensors)


def _tensor(kind: str, shape: tuple[int, ...], raw: np.ndarray[Any, Any]) -> GGUFTensorOut:
    return GGUFTensorOut(type=kind, shape=shape, read=lambda: raw)


ODD_METADATA: tuple[Any, ...] = (
    *map(np.uint32, (0, 1, 2, 7, 4096, 2**31, 2**32 - 1)),
    *map(np.int32, (-1, -(2**31))),
    *map(np.float32, (0, -1, 1e-38, 1e38, np.nan, np.inf)),
    np.uint64(2**63),
    np.bool_(True),
    "",
    "x" * 5000,
    "\0",
    [],
    ["a", "a"],
    np.zeros(0, np.int32),
    np.array([1, 2, 3], np.int32),
    np.array([np.nan], np.float32),
)


def _written(value: Any) -> Any:
    """A value of the reader as the writer takes it."""
    if isinstance(value, LazyStrings):
        return value.decode()
    if isinstance(value, (bool, str, np.ndarray)):
        return value
    return np.float32(value) if isinstance(value, float) else np.uint32(value) if value < 2**32 else np.uint64(value)


def _list_damage(values: Any, rng: random.Random) -> Any:
    """Change, repeat, cut or reorder values of a list."""
    changed, i, j = list(values), rng.randrange(len(values)), rng.randrange(len(values))
    match rng.randrange(5):
        case 0:
            changed[i] = changed[j]
        case 1:
            del changed[i:]
        case 2:
            changed += changed[:50]
        case 3:
            rng.shuffle(changed)
        case _:
            odd = ("", " ", "\u2581", "a" * 5000, "a b c") if isinstance(changed[i], str) else (0, 3, np.nan, 2**31 - 1)
            changed[i] = rng.choice(odd)
    if isinstance(values, list):
        return changed
    with np.errstate(invalid="ignore"):
        return np.array(changed, np.float64).astype(values.dtype)


def _swap(tensors: dict[str, GGUFTensorOut], rng: random.Random) -> None:
    """Rename, delete, repeat or reshape a tensor, or give it another type."""
    name, other = rng.choice(list(tensors)), rng.choice(list(tensors))
    tensor = tensors[name]
    shape, kind = tensor.shape, tensor.type
    match rng.randrange(5):
        case 0:
            tensors[rng.choice(("x", "", "rope_freqs.weight", "output.weight", name + "x"))] = tensors.pop(name)
            return
        case 1:
            del tensors[name]
            return
        case 2:
            tensors[name] = tensors[other]
            return
        case 3:
            shape = rng.choice(((), (0,), shape[::-1], (1, *shape), (*shape[:-1], 0), (256, 256)))
        case _:
            kind = rng.choice(list(GGUF_TYPES.values())).name
    block = next(each.block for each in GGUF_TYPES.values() if each.name == kind)
    if len(shape) > 4 or (block > 1 and (not shape or shape[-1] % block)):
        return
    size = _tensor(kind, shape, np.zeros(0, np.uint8)).nbytes
    tensors[name] = _tensor(kind, shape, np.frombuffer(rng.randbytes(size), np.uint8))
