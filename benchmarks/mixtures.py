"""Mixtures of experts beside dense models that read as many bytes a token, with random weights.

    python -m benchmarks mixtures --device gpu [--models 8x1b,128x48] [--dtype int4:g32] [--int8] [--json FILE]
    python -m benchmarks mixtures --device cpu --int8 --models 8x2,small

`8x1b` is a model in the shape of Llama-3.2-1B whose every MLP is a mixture of 8, of which a token takes 2; `128x48`
has the shape of Qwen3-30B-A3B: 48 layers of 128 experts, 8 taken; `8x2` is two layers of 8 experts, 2 taken, of half
the width inside, `small` 8 narrow layers of 128. The dense
model beside each has the same attention and an MLP as wide as the experts together that a token takes: decoding reads
the same bytes but for the router, so what it reaches in bytes a second is what the mixture's bytes should cost, and
the share of it is what the mixture costs. Both decode in turn at position 256; then 16 sequences together, and a
prompt of 512 tokens. Weights are random bits with small scales, made here; what the models say means nothing. On an
H100 the first command is to take less than four minutes.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.gpu_kernels import CONTEXT, batch_rates, decode_rate
from benchmarks.known_shapes import params
from volumetric import layers as nn
from volumetric.devices import open_device
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.dtypes import Scheme
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.run import Device, RunOptions, lower

BATCH, PROMPT, POSITION = 16, 512, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a mixture; `hidden` is inside of one expert."""

    width: int
    hidden: int
    experts: int
    chosen: int
    blocks: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int = 32000


MODELS = {
    "8x1b": Shape(width=2048, hidden=8192, experts=8, chosen=2, blocks=16, heads=32, kv_heads=8, head_dim=64),
    "8x2": Shape(width=2048, hidden=4096, experts=8, chosen=2, blocks=2, heads=32, kv_heads=8, head_dim=64),
    "128x48": Shape(width=2048, hidden=768, experts=128, chosen=8, blocks=48, heads=32, kv_heads=4, head_dim=128),
    "small": Shape(
        width=512, hidden=192, experts=128, chosen=8, blocks=8, heads=8, kv_heads=2, head_dim=64, vocabulary=4000
    ),
    "tiny": Shape(width=64, hidden=96, experts=5, chosen=2, blocks=2, heads=2, kv_heads=1, head_dim=32, vocabulary=99),
}


def network(shape: Shape, *, dense: bool) -> Network:
    """The mixture, or the dense model that reads as much."""
    embedding = nn.Embedding(num_embeddings=shape.vocabulary, embedding_dim=shape.width)
    layers: dict[Coord, nn.LayerSpec] = {Coord(0): embedding}
    attention = nn.MultiHeadAttention(
        embed_dim=shape.width,
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rope=nn.Rope(dim=shape.head_dim),
    )
    mlp: nn.LayerSpec = nn.SwiGLU(in_features=shape.width, hidden_features=shape.hidden * shape.chosen)
    if not dense:
        expert = nn.SwiGLU(in_features=shape.width, hidden_features=shape.hidden)
        gate = nn.Gate(in_features=shape.width, out_features=shape.experts, top_k=shape.chosen)
        mlp = nn.Parallel(branches=(expert,) * shape.experts, combine="filter", gate=gate)
    before, norm = Coord(0), nn.RMSNorm(num_features=shape.width)
    for z in range(1, shape.blocks + 1):
        block = (norm, attention, nn.Residual(source=str(before)), norm, mlp, nn.Residual(source=str(Coord(z, slot=2))))
        layers |= {Coord(z, slot=slot): spec for slot, spec in enumerate(block)}
        before = Coord(z, slot=5)
    end = shape.blocks + 1
    layers[Coord(end)] = norm
    layers[Coord(end, slot=1)] = nn.Dense(in_features=shape.width, out_features=shape.vocabulary, bias=False)
    return Network(grid=Grid(shape.blocks + 2, slots=6), layers=layers)


def token_bytes(shapes: dict[str, tuple[int, ...]], scheme: Scheme, shape: Shape) -> float:
    """Bytes of weights that a token reads: of the experts those that are chosen, of the embedding one row."""
    total = 0.0
    for key, size in shapes.items():
        if len(size) > 1 and not key.startswith("0.0.0.0/"):
            of_expert = key.split("/")[1].isdigit()
            share = shape.chosen / shape.experts if of_expert else 1.0
            total += share * prod(size) * scheme.bits_per_weight(size) / 8
    return total


def prompt_rates(executable: Any, vocabulary: int) -> list[float]:
    """Tokens of a prompt per second, three times after one to make ready."""
    x = np.arange(PROMPT, dtype=np.int32) * 7 % vocabulary
    state = executable.new_state()
    found = []
    for _ in range(4):
        state.reset()
        began = time.perf_counter()
        executable.forward(state, x)
        found.append(round(PROMPT / (time.perf_counter() - began), 1))
    return found[1:]


def kernels(executable: Any) -> dict[str, list[float]]:
    """Kind of dispatch → how many a token has, and microseconds of one; empty without a GPU's timestamps."""
    if not isinstance(executable, GpuExecutable) or "timestamp-query" not in executable.context.features:
        return {}
    state = executable.new_state()
    state.advance(POSITION)
    times = executable.step_times([state])
    return {t.label: [t.count, round(1e6 * t.seconds / t.count, 2)] for t in times}


def measure(device: Device, name: str, scheme: Scheme, options: RunOptions, tokens: int) -> dict[str, Any]:
    """Both models of a shape: the dense one and the mixture, in turn."""
    shape, read = MODELS[name], {}
    made: dict[str, Any] = {}
    row: dict[str, Any] = {"model": name, "dtype": str(scheme)}
    for kind in ("dense", "mixture"):
        plan = lower(network(shape, dense=kind == "dense"))
        began = time.perf_counter()
        shapes = dict(plan.params)
        made[kind] = device.compile(plan, params(shapes, scheme), options)
        read[kind] = token_bytes(shapes, scheme, shape)
        row[kind] = {
            "ready_s": round(time.perf_counter() - began, 1),
            "resident_gib": round(made[kind].memory.weights / 2**30, 2),
            "mb_token": round(read[kind] / 1e6, 1),
        }
    rates: dict[str, list[float]] = {kind: [] for kind in made}
    for executable in made.values():
        decode_rate(executable, 8, POSITION)
    for _ in range(5):
        for kind, executable in made.items():
            rates[kind].append(round(decode_rate(executable, tokens, POSITION), 1))
    for kind, executable in made.items():
        gb_s = statistics.median(rates[kind]) * read[kind] / 1e9
        row[kind] |= {"tok_s": rates[kind], "gb_s": round(gb_s, 1), "us": kernels(executable)}
        batch_rates(executable, BATCH, 8, POSITION)
        row[kind] |= {f"tok_s_of_{BATCH}": batch_rates(executable, BATCH, tokens // 4, POSITION)}
        row[kind] |= {f"prompt_{PROMPT}_tok_s": prompt_rates(executable, shape.vocabulary)}
    shares = [m * read["mixture"] / (d * read["dense"]) for d, m in zip(rates["dense"], rates["mixture"], strict=True)]
    row["share_of_what_bytes_cost"] = [
        round(statistics.median(shares), 3),
        round(min(shares), 3),
        round(max(shares), 3),
    ]
    for executable in made.values():
        executable.close()
    return row


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="gpu", help="gpu, gpu:NAME or cpu")
    parser.add_argument("--models", default="8x1b,128x48")
    parser.add_argument("--dtype", default="int4:g32")
    parser.add_argument("--int8", action="store_true", help="int8 activations where weights are integers")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of a decode run")
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    args = parser.parse_args()
    device = open_device(args.device)
    print(device.info.description, device.info.details, flush=True)
    options = RunOptions(context=CONTEXT, compute="int8" if args.int8 else "float32")
    rows = []
    for name in args.models.split(","):
        rows.append(measure(device, name, Scheme.parse(args.dtype), options, args.tokens))
        print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"device": device.info.description, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
