"""Training of a transformer of 25 million parameters on a GPU in float32 and float16, beside torch with fp16 autocast.

    python -m benchmarks train_transformer [--device 0] [--updates 20] [--losses 200] [--kernels] [--small]

8 sequences of 512 tokens make an update: embedding and head of 8192 tokens, 4 blocks of width 512 with 8 heads and a
gated block of 2048; AdamW. Printed are tokens/s of `--updates` updates, three times, with their losses read as `train`
does, then losses of `--losses` updates of both types on text that a table of successors generates. torch runs the same
network where it has CUDA: autocast to float16, `GradScaler`, fused AdamW, eager and compiled; and in float32 without
TF32. `--kernels` prints the GPU time of each kind of kernel of an update.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser, positive_int
from benchmarks.gpu_graph_ops import torch_with_cuda
from volumetric.base._typing import Array
from volumetric.builders import transformer
from volumetric.devices.gpu import GpuDevice
from volumetric.network import initialise
from volumetric.train import AdamW, Batch, CrossEntropy, LearnerOptions
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.learner import Compute

RUNS, SETTLE = 3, 3
RATE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A network and its batches."""

    vocabulary: int = 8192
    width: int = 512
    blocks: int = 4
    heads: int = 8
    hidden: int = 2048
    samples: int = 8
    length: int = 512

    @property
    def tokens(self) -> int:
        return self.samples * self.length


SMALL = Sizes(vocabulary=80, width=32, blocks=1, heads=2, hidden=48, samples=2, length=32)


def text(of: Sizes, count: int) -> list[tuple[Array, Array]]:
    """Batches of ids and their successors: each token has four, of which it takes one at random."""
    rng = np.random.default_rng(0)
    successors = rng.integers(0, of.vocabulary, (of.vocabulary, 4))
    ids = np.empty((count, of.samples, of.length + 1), np.int32)
    ids[..., 0] = rng.integers(0, of.vocabulary, ids.shape[:2])
    turns = rng.integers(0, 4, ids.shape)
    for at in range(of.length):
        ids[..., at + 1] = successors[ids[..., at], turns[..., at]]
    return [(batch[:, :-1], batch[:, 1:]) for batch in ids]


def tokens_per_second(of: Sizes, updates: int, step: Callable[[int], float]) -> list[float]:
    for at in range(SETTLE):
        step(at)
    rates = []
    for _ in range(RUNS):
        began = time.perf_counter()
        for at in range(updates):
            step(at)
        rates.append(updates * of.tokens / (time.perf_counter() - began))
    return rates


def report(name: str, rates: list[float]) -> None:
    each = ", ".join(f"{rate:,.0f}" for rate in rates)
    print(f"{name:28}{statistics.median(rates):12,.0f} tokens/s ({each})", flush=True)


def learner_of(device: GpuDevice, of: Sizes, compute: Compute) -> DeviceLearner:
    network = transformer(of.vocabulary, width=of.width, blocks=of.blocks, heads=of.heads, hidden=of.hidden, tied=False)
    options = LearnerOptions(loss=CrossEntropy(), optimiser=AdamW(), compute=compute)
    return DeviceLearner(network, initialise(network, seed=1), options, device.graphs())


def ours(device: GpuDevice, of: Sizes, compute: Compute, args: Any) -> list[float]:
    """Print the speed of updates; return the losses of others."""
    learner = learner_of(device, of, compute)
    batches = [Batch(x, y) for x, y in text(of, max(args.losses, args.updates, 1))]
    losses = [_step(learner, batch) / of.tokens for batch in batches[: args.losses]]
    report(f"ours {compute}", tokens_per_second(of, args.updates, lambda at: _step(learner, batches[at])))
    if args.kernels:
        for program in learner.arrays.programs:
            times = program.step_times(repeats=3)  # pyright: ignore[reportAttributeAccessIssue]  (of a GPU)
            for one in sorted(times, key=lambda one: -one.seconds)[:24]:
                print(f"  {1e6 * one.seconds:9.1f} us {one.count:5} x {one.label}")
    for program in learner.arrays.programs:
        program.close()  # pyright: ignore[reportAttributeAccessIssue]
    return losses


def _step(learner: DeviceLearner, batch: Batch) -> float:
    return learner.step([batch], rate=RATE).tally.total


def torch_network(torch: Any, of: Sizes) -> Any:
    """The same network in torch."""
    nn, f = torch.nn, torch.nn.functional
    half = of.width // of.heads // 2
    angles = np.arange(of.length)[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = (torch.tensor(g(angles), dtype=torch.float32, device="cuda") for g in (np.cos, np.sin))

    def turned(x: Any) -> Any:
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.RMSNorm(of.width), nn.RMSNorm(of.width)
            self.query, self.key, self.value, self.out = (nn.Linear(of.width, of.width, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(of.width, of.hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(of.hidden, of.width, bias=False)

        def forward(self, x: Any) -> Any:
            h = self.first(x)
            q, k, v = (
                p(h).view(of.samples, of.length, of.heads, -1).transpose(1, 2)
                for p in (self.query, self.key, self.value)
            )
            y = f.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(of.samples, of.length, of.width))
            h = self.second(x)
            return x + self.down(f.silu(self.gate(h)) * self.up(h))

    blocks = [Block() for _ in range(of.blocks)]
    head = nn.Linear(of.width, of.vocabulary, bias=False)
    return nn.Sequential(nn.Embedding(of.vocabulary, of.width), *blocks, nn.RMSNorm(of.width), head).cuda()


def theirs(torch: Any, of: Sizes, updates: int, *, half: bool, compiled: bool) -> list[float]:
    network = torch_network(torch, of)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    run = torch.compile(network) if compiled else network
    batches = [(torch.from_numpy(x).cuda(), torch.from_numpy(y).long().cuda()) for x, y in text(of, updates)]

    def step(at: int) -> float:
        x, y = batches[at]
        with torch.autocast("cuda", torch.float16, enabled=half):
            loss = torch.nn.functional.cross_entropy(run(x).flatten(0, 1), y.flatten())
        optimiser.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss.item()

    return tokens_per_second(of, updates, step)


def main() -> None:
    """Print a line for each way to train, and the losses."""
    parser = argument_parser(__doc__)
    parser.add_argument("--device")
    parser.add_argument("--updates", type=positive_int, default=20)
    parser.add_argument("--losses", type=positive_int, default=200)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    of, device, torch = SMALL if args.small else Sizes(), GpuDevice(args.device), torch_with_cuda()
    print(f"{device.info.description}, matrix units: {device.context.caps.matrix_units}")
    losses: dict[Compute, list[float]] = {}
    for compute in ("float16", "float32"):
        losses[compute] = ours(device, of, compute, args)
    if torch is not None:
        for half, compiled in ((False, False), (True, False), *(() if args.no_compile else ((True, True),))):
            name = f"torch {'fp16 autocast' if half else 'float32'}{' compiled' if compiled else ''}"
            report(name, theirs(torch, of, args.updates, half=half, compiled=compiled))
    if args.losses:
        for at in sorted({0, args.losses // 4, args.losses // 2, args.losses - 1}):
            print(f"loss of update {at + 1:4}: " + ", ".join(f"{name} {own[at]:.4f}" for name, own in losses.items()))
        tail = max(args.losses // 10, 1)
        ends = ", ".join(f"{name} {statistics.mean(own[-tail:]):.4f}" for name, own in losses.items())
        print(f"mean of the last {tail}: {ends}")


if __name__ == "__main__":
    main()
