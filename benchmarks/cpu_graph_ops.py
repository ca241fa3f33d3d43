"""Layers and small training runs as tensor graphs on the CPU, beside PyTorch.

    python -m benchmarks cpu_graph_ops [--threads 2] [--only conv] [--torch path/to/python/with/torch]

Prints microseconds of the forward pass and of forward and backward together, in the quickest of many short batches.
With ``--torch`` another interpreter measures the same layers in PyTorch, in turns with this one, and ratios above 1
mean that volumetric is faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import geometric_mean

import numpy as np

SECONDS = 0.3
"""For each measurement."""

CASES: dict[str, tuple[str, dict[str, int], tuple[int, ...]]] = {
    "dense 1024 b1": ("dense", {"i": 1024, "o": 1024}, (1, 1024)),
    "dense 512 b1": ("dense", {"i": 512, "o": 512}, (1, 512)),
    "dense 512 b64": ("dense", {"i": 512, "o": 512}, (64, 512)),
    "dense 1024 b256": ("dense", {"i": 1024, "o": 1024}, (256, 1024)),
    "dense relu 512 b64": ("dense_relu", {"i": 512, "o": 512}, (64, 512)),
    "rnn 512 t1": ("rnn", {"i": 512, "o": 512}, (1, 1, 512)),
    "rnn 128 b16 t32": ("rnn", {"i": 128, "o": 128}, (16, 32, 128)),
    "lstm 512 t1": ("lstm", {"i": 512, "o": 512}, (1, 1, 512)),
    "lstm 128 b16 t32": ("lstm", {"i": 128, "o": 128}, (16, 32, 128)),
    "gru 128 b16 t32": ("gru", {"i": 128, "o": 128}, (16, 32, 128)),
    "conv1d 64x512": ("conv1", {"i": 64, "o": 64}, (1, 64, 512)),
    "conv2d 32x64x64": ("conv2", {"i": 32, "o": 32}, (1, 32, 64, 64)),
    "conv2d 3x32x32 b16": ("conv2", {"i": 3, "o": 16}, (16, 3, 32, 32)),
    "conv2d 16x32x32 b16": ("conv2", {"i": 16, "o": 32}, (16, 16, 32, 32)),
    "conv3d 16x16^3": ("conv3", {"i": 16, "o": 16}, (1, 16, 16, 16, 16)),
    "convt2d 16x16x16 b4": ("convt2", {"i": 16, "o": 16}, (4, 16, 16, 16)),
    "embedding 2048x128 64": ("embedding", {"i": 2048, "o": 128}, (64,)),
    "rms norm 1024 b1": ("rms", {"i": 1024}, (1, 1024)),
    "rms norm 512 b64": ("rms", {"i": 512}, (64, 512)),
    "layer norm 512 b64": ("layer", {"i": 512}, (64, 512)),
    "softmax 1000 b64": ("softmax", {}, (64, 1000)),
    "attention 128 h4 t64": ("mha", {"i": 128, "h": 4}, (64, 128)),
    "attention 256 h8 t256": ("mha", {"i": 256, "h": 8}, (256, 256)),
    "swiglu 512 1024 b1": ("swiglu", {"i": 512, "o": 1024}, (1, 512)),
    "swiglu 512 1024 b64": ("swiglu", {"i": 512, "o": 1024}, (64, 512)),
    "gelu b64x1024": ("gelu", {}, (64, 1024)),
}


def timed(run: Callable[[], object]) -> float:
    """Microseconds of one call in the quickest of many short batches, which leaves out what other programs take."""
    for _ in range(3):
        run()
    began = time.perf_counter()
    run()
    count = max(1, int(0.002 / (time.perf_counter() - began)))
    best, until = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        for _ in range(count):
            run()
        best = min(best, (time.perf_counter() - began) / count)
    return 1e6 * best


def measure_here(name: str, threads: int) -> tuple[float, float]:
    """Forward, and forward with backward, as graphs."""
    from volumetric.devices.cpu import CpuDevice
    from volumetric.graph import GraphBuilder, differentiate
    from volumetric.layers import (
        GRU,
        LSTM,
        RNN,
        Conv1d,
        Conv2d,
        Conv3d,
        ConvTranspose2d,
        Dense,
        Embedding,
        LayerNorm,
        MultiHeadAttention,
        RMSNorm,
        Softmax,
        SwiGLU,
    )
    from volumetric.layers.emit_scope import Scope

    kind, f, shape = CASES[name]
    i, o = f.get("i", 0), f.get("o", 0)
    makers: dict[str, Callable[[], object]] = {
        "dense": lambda: Dense(in_features=i, out_features=o),
        "dense_relu": lambda: Dense(in_features=i, out_features=o, activation="relu"),
        "rnn": lambda: RNN(input_size=i, hidden_size=o),
        "lstm": lambda: LSTM(input_size=i, hidden_size=o),
        "gru": lambda: GRU(input_size=i, hidden_size=o),
        "conv1": lambda: Conv1d(in_channels=i, out_channels=o, kernel_size=3, padding=1),
        "conv2": lambda: Conv2d(in_channels=i, out_channels=o, kernel_size=3, padding=1),
        "conv3": lambda: Conv3d(in_channels=i, out_channels=o, kernel_size=3, padding=1),
        "convt2": lambda: ConvTranspose2d(in_channels=i, out_channels=o, kernel_size=3, stride=2, padding=1),
        "embedding": lambda: Embedding(num_embeddings=i, embedding_dim=o),
        "rms": lambda: RMSNorm(num_features=i),
        "layer": lambda: LayerNorm(num_features=i),
        "softmax": Softmax,
        "mha": lambda: MultiHeadAttention(embed_dim=i, num_heads=f["h"]),
        "swiglu": lambda: SwiGLU(in_features=i, hidden_features=o),
    }
    random = np.random.default_rng(0)
    ids = kind == "embedding"
    x = random.integers(0, i, shape).astype(np.int32) if ids else random.standard_normal(shape).astype(np.float32)
    device = CpuDevice(threads).graphs()
    store = device.store()

    def graph(backward: bool) -> tuple[object, list[np.ndarray]]:
        work = GraphBuilder()
        at = work.input("x", shape, "int32" if ids else "float32")
        params: list[int] = []
        if kind == "gelu":
            y = work.unary(at, "gelu")
        else:
            spec = makers[kind]()
            for p in spec.params():
                store.write(p.name, 0.05 * random.standard_normal(p.shape))
                params.append(work.stored(p.name, p.shape))
            y = Scope(work=work, param=work.stored, path="layer").emit(spec, at)
        if not backward:
            return device.compile(work.finish([y]), store), [x]
        gy = work.input("gy", work.shape(y))
        wanted = params + ([] if ids else [at])
        grads = differentiate(work, {y: gy}, wanted)
        g = random.standard_normal(work.shape(y)).astype(np.float32)
        return device.compile(work.finish([y, *(grads[w] for w in wanted)]), store), [x, g]

    found = []
    for backward in (False, True):
        program, inputs = graph(backward)
        found.append(timed(partial(program.run, inputs)))
    return found[0], found[1]


def measure_torch(name: str, threads: int) -> tuple[float, float]:
    """The same in PyTorch, eager."""
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    kind, f, shape = CASES[name]
    i, o = f.get("i", 0), f.get("o", 0)
    functional = nn.functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(i, i, bias=False) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (p(x).view(-1, f["h"], i // f["h"]).transpose(0, 1)[None] for p in (self.q, self.k, self.v))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o(y[0].transpose(0, 1).reshape(-1, i))

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((i, o), (i, o), (o, i)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(functional.silu(self.gate(x)) * self.up(x))

    makers: dict[str, Callable[[], object]] = {
        "dense": lambda: nn.Linear(i, o),
        "dense_relu": lambda: nn.Sequential(nn.Linear(i, o), nn.ReLU()),
        "rnn": lambda: nn.RNN(i, o, batch_first=True),
        "lstm": lambda: nn.LSTM(i, o, batch_first=True),
        "gru": lambda: nn.GRU(i, o, batch_first=True),
        "conv1": lambda: nn.Conv1d(i, o, 3, padding=1),
        "conv2": lambda: nn.Conv2d(i, o, 3, padding=1),
        "conv3": lambda: nn.Conv3d(i, o, 3, padding=1),
        "convt2": lambda: nn.ConvTranspose2d(i, o, 3, stride=2, padding=1),
        "embedding": lambda: nn.Embedding(i, o),
        "rms": lambda: nn.RMSNorm(i),
        "layer": lambda: nn.LayerNorm(i),
        "softmax": lambda: nn.Softmax(-1),
        "mha": Attention,
        "swiglu": Gated,
        "gelu": nn.GELU,
    }
    module = makers[kind]()
    ids = kind == "embedding"
    x = torch.randint(0, i, shape) if ids else torch.randn(shape, requires_grad=True)

    def forward() -> torch.Tensor:
        y = module(x)
        return y[0] if isinstance(y, tuple) else y

    g = torch.randn_like(forward())

    def both() -> None:
        for p in (x, *module.parameters()):
            p.grad = None
        forward().backward(g)

    with torch.no_grad():
        quick = timed(forward)
    return quick, timed(both)


def peer(python: str, name: str, threads: int) -> tuple[float, float]:
    command = [python, __file__, "--measure-torch", name, "--threads", str(threads)]
    return tuple(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--torch", help="a Python with torch")
    parser.add_argument("--measure-torch", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure_torch:
        json.dump(measure_torch(args.measure_torch, args.threads), sys.stdout)
        return
    ratios: list[list[float]] = [[], []]
    for name in (n for n in CASES if args.only in n):
        own = measure_here(name, args.threads)
        line = f"{name:24} forward {own[0]:9.1f} us  both {own[1]:9.1f} us"
        if args.torch:
            other = peer(args.torch, name, args.threads)
            for kept, a, b in zip(ratios, own, other, strict=True):
                kept.append(b / a)
            line += (
                f"   torch {other[0]:9.1f} {other[1]:9.1f}   ratio {other[0] / own[0]:5.2f} {other[1] / own[1]:5.2f}"
            )
        print(line, flush=True)
    if args.torch and ratios[0]:
        forward, both = (geometric_mean(kept) for kept in ratios)
        print(f"geometric mean of ratios: forward {forward:.2f}, forward and backward {both:.2f}")


if __name__ == "__main__":
    main()
