"""Exchange networks with the Go engine through its Python binding, both ways, and compare what they compute.

    pip install welvet==0.80.0        # in an environment of its own
    python -m benchmarks check_loom --welvet-python OTHER/bin/python [--fixtures tests/fixtures/loom]

For every kind of layer and numeric type: a file written here is run there and here (`ours`); the file that the engine
writes after converting it is read and run here, and run there (`theirs`). `--fixtures` keeps its files and outputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.workers import Worker
from volumetric import layers as nn
from volumetric.analysis import predict
from volumetric.builders import chain
from volumetric.loaders.loom_blob import DTYPES
from volumetric.loaders.loom_json import read_loom
from volumetric.loaders.loom_write import loom_text
from volumetric.network import Network, Params, initialise
from volumetric.network.weight_store import WeightStore

TOLERANCE = 2e-5
KEPT_ALL = ("dense", "attention", "swiglu", "lstm", "cnn2")
KEPT = ("float32", "bfloat16", "int8", "uint4", "ternary", "binary")
"""Numeric types that the fixtures hold of the other layers."""


def dense(into: int, out: int, activation: str = "linear") -> nn.Dense:
    return nn.Dense(in_features=into, out_features=out, bias=False, activation=activation)  # pyright: ignore[reportArgumentType]


def cases() -> dict[str, tuple[Network, tuple[int, ...]]]:
    """Name → network and shape of an input."""
    attention = nn.MultiHeadAttention(
        embed_dim=8, num_heads=4, num_kv_heads=2, head_dim=2, qkv_bias=True, out_bias=True, rope=nn.Rope(dim=2)
    )
    image = nn.Conv2d(in_channels=2, out_channels=3, kernel_size=3, padding=1, bias=False, activation="relu")
    skip = nn.Sequential(layers=(dense(5, 5, "tanh"), nn.Residual(), dense(5, 3)))
    both = nn.Parallel(branches=(dense(5, 2, "sigmoid"), dense(5, 3)), combine="concat")
    single: dict[str, tuple[nn.LayerSpec, tuple[int, ...], tuple[int, ...]]] = {
        "dense": (dense(6, 4, "gelu_tanh"), (6,), (2, 6)),
        "attention": (attention, (8,), (1, 3, 8)),
        "swiglu": (nn.SwiGLU(in_features=6, hidden_features=7, bias=True), (6,), (2, 6)),
        "rms_norm": (nn.RMSNorm(num_features=6, eps=1e-6), (6,), (2, 6)),
        "layer_norm": (nn.LayerNorm(num_features=6), (6,), (2, 6)),
        "rnn": (nn.RNN(input_size=3, hidden_size=4), (3,), (1, 3, 3)),
        "lstm": (nn.LSTM(input_size=3, hidden_size=4), (3,), (1, 3, 3)),
        "cnn1": (nn.Conv1d(in_channels=2, out_channels=3, kernel_size=3, stride=2, bias=False), (2, 7), (2, 2, 7)),
        "cnn2": (image, (2, 5, 4), (2, 2, 5, 4)),
        "cnn3": (nn.Conv3d(in_channels=1, out_channels=2, kernel_size=2, bias=False), (1, 3, 4, 3), (1, 1, 3, 4, 3)),
        "transposed1": (
            nn.ConvTranspose1d(in_channels=2, out_channels=3, kernel_size=3, stride=2, bias=False),
            (2, 4),
            (1, 2, 4),
        ),
        "transposed2": (
            nn.ConvTranspose2d(in_channels=2, out_channels=2, kernel_size=3, stride=2, padding=1, bias=False),
            (2, 3, 3),
            (1, 2, 3, 3),
        ),
        "transposed3": (
            nn.ConvTranspose3d(in_channels=1, out_channels=2, kernel_size=2, bias=False),
            (1, 2, 2, 2),
            (1, 1, 2, 2, 2),
        ),
        "kmeans": (nn.KMeans(num_clusters=3, in_features=4, temperature=1.5), (4,), (1, 4)),
        "softmax": (nn.Softmax(temperature=2.0), (5,), (1, 5)),
        "sequential": (skip, (5,), (2, 5)),
        "parallel": (both, (5,), (1, 5)),
    }
    networks = {name: (chain([spec], row), shape) for name, (spec, row, shape) in single.items()}
    networks["embedding"] = (chain([nn.Embedding(num_embeddings=7, embedding_dim=4)], (), "int32"), (3,))
    head = nn.Sequential(layers=(nn.Reshape(shape=(60,)), dense(60, 3)))
    networks["image"] = (chain([image, head, nn.Softmax()], (2, 5, 4)), (1, 2, 5, 4))
    return networks


def inputs(network: Network, shape: tuple[int, ...]) -> np.ndarray:
    draw = np.random.default_rng(11)
    return draw.integers(7, size=shape) if network.input_dtype == "int32" else draw.normal(size=shape)


def weights(network: Network) -> Params:
    """Weights of about 0.5 everywhere, norms and biases included."""
    draw = np.random.default_rng(5)
    shapes = {key: store.shape for key, store in initialise(network).items()}
    zero = [key for key in shapes if key.endswith("hh.bias")]  # the engine has one bias for both
    values = {key: draw.uniform(-1, 1, shape).astype(np.float32) for key, shape in shapes.items()}
    return Params({k: WeightStore.from_array(0 * v if k in zero else v) for k, v in values.items()})


def run_here(network: Network, params: Params, x: np.ndarray) -> np.ndarray:
    dtype = np.int32 if network.input_dtype == "int32" else np.float32
    return predict(network, params, x.astype(dtype)).ravel()


def exchange(engine: Worker, name: str, network: Network, shape: tuple[int, ...]) -> Iterator[dict]:
    """Convert a network to each numeric type there; yield what both sides make of the files."""
    x, params = inputs(network, shape), weights(network)
    length = shape[1] if len(shape) == 3 else 1
    flat = x.astype(float).ravel().tolist()
    first = loom_text(network, params, seq_length=length)
    for number, dtype in enumerate(DTYPES):
        question = {"x": flat, "shape": list(shape), "layers": len(network.layers)}
        found = engine.ask({"text": first, "dtype": number, **question})
        again, stores = read_loom(found["text"], name)
        assert stores is not None
        here, there = run_here(again, stores, x), np.array(found["y"])
        back = engine.ask({"text": loom_text(again, stores, seq_length=length), "dtype": None, **question})
        limit = TOLERANCE * (float(np.abs(here).max()) + 1e-9)
        theirs, ours = (float(np.abs(here - np.array(y)).max()) for y in (found["y"], back["y"]))
        yield {
            "dtype": dtype,
            "file": json.loads(found["text"]),
            "y": found["y"] if theirs <= limit else None,
            "theirs": theirs,
            "ours": ours,
            "same": max(theirs, ours) <= limit,
            "odd": "all zeros there" if not there.any() else "all equal there" if np.ptp(there) < 1e-6 else "",
            "bytes": back["text"] == found["text"],
        }


def main() -> None:
    """Print a line for each exchange and a summary."""
    parser = argument_parser(__doc__)
    parser.add_argument("--welvet-python", required=True)
    parser.add_argument("--fixtures", type=Path)
    given = parser.parse_args()
    engine = Worker(given.welvet_python, "loom_worker.py", name="the Go engine")
    counts = {"same": 0, "odd": 0, "different": 0}
    for name, (network, shape) in cases().items():
        kept = []
        for found in exchange(engine, name, network, shape):
            verdict = "same" if found["same"] else "odd" if found["odd"] else "different"
            counts[verdict] += 1
            mark = "bytes equal" if found["bytes"] else "bytes differ"
            errors = f"theirs {found['theirs']:.1e} ours {found['ours']:.1e}"
            print(f"{name:12} {found['dtype']:10} {verdict:10} {errors} {mark:12} {found['odd']}".rstrip())
            if name in KEPT_ALL or found["dtype"] in KEPT:
                kept.append({key: found[key] for key in ("dtype", "file", "y", "bytes")})
        if given.fixtures:
            given.fixtures.mkdir(parents=True, exist_ok=True)
            stored = {"x": inputs(network, shape).astype(float).ravel().tolist(), "shape": list(shape), "cases": kept}
            (given.fixtures / f"{name}.json").write_text(json.dumps(stored) + "\n")
    print(
        f"{counts['same']} of {sum(counts.values())} exchanges compute the same; "
        f"in {counts['odd']} the engine's own output is constant; {counts['different']} differ"
    )


if __name__ == "__main__":
    main()
