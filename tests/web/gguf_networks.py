"""A template written by hand, and a GGUF file for it: for what the reader does with files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.web.handmade_networks import dense_network
from tests.web.static_server import write_json
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf

BULK = 300_000
"""Numbers of a tensor that makes the file large enough to be cut."""
WORDS = ("a", "b")
SCALE = np.array([3, 1, 2], np.float32)


def write_dense(path: Path, weights: NDArray[np.float32], *, width: int = 4, words: tuple[str, ...] = WORDS) -> Path:
    """Write the weights of `dense_network` as a GGUF file, between two halves of a bulky tensor."""
    metadata = {
        "general.architecture": "dense",
        "general.name": "A dense file",
        "general.license": "mit",
        "dense.width": np.uint32(width),
        "dense.epsilon": np.float32(1e-5),
        "tokenizer.ggml.tokens": list(words),
    }
    bulk = np.arange(BULK, dtype=np.float32)
    tensors = {"first": bulk, "w": weights, "second": -bulk, "scale": SCALE}
    write_gguf(
        path,
        metadata,
        {
            name: GGUFTensorOut(type="F32", shape=array.shape, read=lambda array=array: array)
            for name, array in tensors.items()
        },
    )
    return path


def _elements(words: tuple[str, ...]) -> bytes:
    return b"".join(len(word).to_bytes(8, "little") + word.encode() for word in words)


def dense_template(folder: Path) -> dict[str, Any]:
    """Write a template for such files; return network.json."""
    folder.mkdir(exist_ok=True)
    network, _ = dense_network(folder, np.random.default_rng(0))
    (folder / "weights-000.bin").unlink()
    network["pieces"] = []
    network["template"] = {
        "name": "A dense file",
        "metadata": {"general.architecture": "dense", "dense.width": 4, "dense.epsilon": 1e-05},
        "arrays": {
            "tokenizer.ggml.tokens": {"type": 8, "count": 2, "sha256": hashlib.sha256(_elements(WORDS)).hexdigest()}
        },
        "tensors": {"first": [0, [BULK]], "w": [0, [10]], "second": [0, [BULK]], "scale": [0, [3]]},
        "fixed": {"scale": hashlib.sha256(SCALE.tobytes()).hexdigest()},
        "ends": {},
        "types": {},
        "fills": [
            [["w", "words", [[0, 0, [[10, 1, 1]]]]]],
            [["first", "words", [[0, 0, [[BULK, 1, 1]]]]], ["second", "words", [[0, BULK, [[BULK, 1, 1]]]]]],
        ],
    }
    buffers = network["variants"][0]["buffers"]
    del buffers[3]["parts"]
    buffers[3]["fill"] = 0
    buffers.append({"name": "bulk", "bytes": 8 * BULK, "fill": 1})
    write_json(folder / "network.json", network)
    return network
