"""Other blocks inside of a language model: what they cost beside the plain model.

Models of random weights in the shape of SmolLM2-135M: `plain` of attention and MLP blocks alone; `mixed`, in which a
middle block holds an LSTM in the place of attention, and the next one a gated mixture of SwiGLU experts, some of them
chosen for each token, in the place of the MLP; `conv1d`, `kmeans` and `late`, in which the middle block's attention is
a convolution over the features, distances to clusters, or reads the block before one row late. None of those three
runs on packed weights, the 29 other blocks do. Decoding reads every weight that a token needs once, so a model should
take the time of the plain one times the quotient of their bytes. All decode in turn.

    python -m benchmarks mixed_layers --device cpu
    python -m benchmarks mixed_layers --device cpu --models conv1d kmeans late
    python -m benchmarks mixed_layers --device gpu --tokens 256
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from math import prod

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.timing import spread
from volumetric import layers as nn
from volumetric.devices import open_device
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.run import Executable, RunOptions, lower
from volumetric.run.call_batch import greedy_ids

EXPERTS, CHOSEN = 8, 2


@dataclass(frozen=True)
class Shape:
    width: int = 576
    heads: int = 9
    kv_heads: int = 3
    hidden: int = 1536
    vocabulary: int = 49152
    blocks: int = 30


def convolution(width: int) -> nn.LayerSpec:
    """A convolution over the features of each row, in 16 channels."""
    conv = nn.Conv1d(in_channels=16, out_channels=16, kernel_size=3, padding=1)
    return nn.Sequential(layers=(nn.Reshape(shape=(16, width // 16)), conv, nn.Reshape(shape=(-1,))))


def network_of(shape: Shape, name: str) -> Network:
    """The model of that name."""
    embedding = nn.Embedding(num_embeddings=shape.vocabulary, embedding_dim=shape.width)
    layers: dict[Coord, nn.LayerSpec] = {Coord(0): embedding}
    before, half = Coord(0), shape.blocks // 2
    for z in range(1, shape.blocks + 1):
        first: nn.LayerSpec = nn.MultiHeadAttention(
            embed_dim=shape.width, num_heads=shape.heads, num_kv_heads=shape.kv_heads,
            rope=nn.Rope(dim=shape.width // shape.heads),
        )  # fmt: skip
        second: nn.LayerSpec = nn.SwiGLU(in_features=shape.width, hidden_features=shape.hidden)
        if z == half:
            first = {
                "mixed": nn.LSTM(input_size=shape.width, hidden_size=shape.width),
                "conv1d": convolution(shape.width),
                "kmeans": nn.KMeans(in_features=shape.width, num_clusters=shape.width),
            }.get(name, first)
        if name == "mixed" and z == half + 1:
            gate = nn.Gate(in_features=shape.width, out_features=EXPERTS, top_k=CHOSEN)
            second = nn.Parallel(branches=(second,) * EXPERTS, combine="filter", gate=gate)
        block = (
            nn.RMSNorm(num_features=shape.width), first, nn.Residual(source=str(before)),
            nn.RMSNorm(num_features=shape.width), second, nn.Residual(source=str(Coord(z, slot=2))),
        )  # fmt: skip
        layers |= {Coord(z, slot=slot): spec for slot, spec in enumerate(block)}
        before = Coord(z, slot=5)
    end = shape.blocks + 1
    layers[Coord(end)] = nn.RMSNorm(num_features=shape.width)
    layers[Coord(end, slot=1)] = nn.Dense(in_features=shape.width, out_features=shape.vocabulary, bias=False)
    links = [Link(kind="shared", source=Coord(0), target=Coord(end, slot=1))]
    if name == "late":
        source, target = Coord(half - 1, slot=5), Coord(half, slot=1)
        links.append(Link(kind="activation", source=source, target=target, combine="add", delay=1))
    return Network(grid=Grid(shape.blocks + 2, slots=6), layers=layers, links=tuple(links))


def stored_bytes(params: Params) -> dict[str, int]:
    """Bytes of each parameter as it is stored."""
    return {
        key: int(prod(store.shape) * store.scheme.bits_per_weight(store.shape)) // 8 for key, store in params.items()
    }


def read_bytes(sizes: dict[str, int], shape: Shape) -> float:
    """Bytes that a token reads: all, but of the experts those that are chosen."""
    experts = f"{shape.blocks // 2 + 1}.0.0.4/"
    each = [n * (CHOSEN / EXPERTS if key.startswith(experts) and key[len(experts) :] != "gate/weight" else 1.0)
            for key, n in sizes.items()]  # fmt: skip
    return sum(each)


def decode_seconds(executable: Executable, tokens: int) -> float:
    """Seconds for each greedy token after a short prompt."""
    state = executable.new_state()
    executable.forward(state, np.arange(16, dtype=np.int32))
    stream = greedy_ids(executable, state, 1)
    next(stream)
    began = time.perf_counter()
    for _ in range(tokens):
        next(stream)
    seconds = (time.perf_counter() - began) / tokens
    stream.close()
    return seconds


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="*", default=["mixed"], choices=["mixed", "conv1d", "kmeans", "late"])
    parser.add_argument("--dtype", default="int4:g32")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=30)
    args = parser.parse_args()
    shape, device = Shape(blocks=args.blocks), open_device(args.device)
    options = RunOptions(context=512)
    found: dict[str, tuple[Executable, float]] = {}
    for name in ("plain", *args.models):
        network = network_of(shape, name)
        params = initialise(network)
        network.morph(params, args.dtype, keep_masters=False)
        sizes = stored_bytes(params)
        executable = device.compile(lower(network), params, options)
        found[name] = executable, read_bytes(sizes, shape) if name == "mixed" else float(sum(sizes.values()))
        resident = executable.memory.weights
        print(json.dumps({"model": name, "stored_mib": round(sum(sizes.values()) / 2**20, 1),
                          "resident_mib": round(resident / 2**20, 1)}), flush=True)  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in found}
    for executable, _ in found.values():
        decode_seconds(executable, 8)
    for _ in range(args.rounds):
        for name, (executable, _) in found.items():
            times[name].append(decode_seconds(executable, args.tokens))
    for name, seconds in times.items():
        rates = sorted(1 / s for s in seconds)
        print(f"{name}: {statistics.median(rates):.1f} tokens/s ({rates[0]:.1f}–{rates[-1]:.1f})")
    for name in args.models:
        ratios = [other / plain for other, plain in zip(times[name], times["plain"], strict=True)]
        print(f"time, {name} / plain: {spread(ratios, '.3f')}; "
              f"bytes read: {found[name][1] / found['plain'][1]:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
