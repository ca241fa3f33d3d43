"""Products of training a transformer on the matrix units of a GPU, by tile, beside float32 and torch in fp16 on CUDA.

    python -m benchmarks matrix_products [--device 0] [--only "dW"] [--small] [--all-tiles]

A product runs 20 times in one compute pass between two GPU timestamps, 7 times for each tile and number of splits, in
turn. Printed are TFLOP/s by the median, the range of the 7, and the largest error over the largest element, against
sides rounded to float16 on the host. `*` marks what the engine chooses. torch multiplies tensors that are float16
already; here both sides are float32 in memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.gpu_graph_ops import torch_with_cuda
from volumetric.base._typing import Array
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW
from volumetric.devices.gpu.kernels.graph import gemm, matrix_gemm
from volumetric.devices.gpu.kernels.graph.grouped_gemm import product_of
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweredNode, LoweringRequest
from volumetric.devices.gpu.kernels.graph.matrix_gemm import EMULATED_TILE
from volumetric.devices.gpu.kernels.matrix_tiles import TILES, MatrixTile
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.devices.gpu.profile import passes_seconds

RUNS, REPEATS = 7, 20
OTHER_TILES = (
    MatrixTile(m=128, n=128, k=32, rows=32, columns=32),
    MatrixTile(m=128, n=128, k=32, rows=64, columns=32),
    MatrixTile(m=128, n=128, k=32, rows=64, columns=64),
    MatrixTile(m=128, n=128, k=64, rows=64, columns=32),
    MatrixTile(m=128, n=64, k=64, rows=32, columns=32),
    MatrixTile(m=64, n=128, k=32, rows=32, columns=32),
    MatrixTile(m=64, n=64, k=32, rows=32, columns=32),
    MatrixTile(m=256, n=128, k=32, rows=64, columns=64),
)


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product with the names of autograd: forward x Wᵀ ("nt"), dX = g W ("nn"), dW = gᵀ x ("tn")."""

    name: str
    m: int
    n: int
    k: int
    sides: str
    groups: int = 1

    @property
    def flops(self) -> float:
        return 2.0 * self.groups * self.m * self.n * self.k

    def request(self, context: OpenGpu) -> LoweringRequest:
        a = (self.k, self.m) if self.sides[0] == "t" else (self.m, self.k)
        b = (self.n, self.k) if self.sides[1] == "t" else (self.k, self.n)
        attrs = {
            "trans_a": self.sides[0] == "t",
            "trans_b": self.sides[1] == "t",
            "groups": self.groups,
            "activation": "linear",
        }
        return LoweringRequest(
            op="gemm",
            inputs=((self.groups, *a), (self.groups, *b)),
            outputs=((self.groups, self.m, self.n),),
            attrs=attrs,
            caps=context.caps,
            products="float16",
        )


def products(rows: int, width: int, hidden: int, vocabulary: int, heads: int, length: int) -> list[Product]:
    """The products of an update: projections, gated block, head, and attention."""
    each = rows // length * heads
    cases = []
    for name, n, k in (
        ("square", width, width),
        ("up", hidden, width),
        ("down", width, hidden),
        ("head", vocabulary, width),
    ):
        cases += [
            Product(name=f"{name} forward", m=rows, n=n, k=k, sides="nt"),
            Product(name=f"{name} dX", m=rows, n=k, k=n, sides="nn"),
            Product(name=f"{name} dW", m=n, n=k, k=rows, sides="tn"),
        ]
    deep = width // heads
    cases.append(Product(name="scores", m=length, n=length, k=deep, sides="nt", groups=each))
    cases.append(Product(name="values", m=length, n=deep, k=length, sides="nn", groups=each))
    cases.append(Product(name="values dV", m=length, n=deep, k=length, sides="tn", groups=each))
    return cases


def bind(context: OpenGpu, lowered: LoweredNode, a: Any, b: Any, c: Any) -> list[BoundDispatch]:
    places = {
        "input": [a, b],
        "output": [c],
        "scratch": [context.buffer(nbytes, "scratch") for nbytes in lowered.scratch],
    }
    return [
        context.bind(one.dispatch, {name: places[ref.place][ref.number] for name, ref in one.buffers.items()}, one.dims)
        for one in lowered.launches
    ]


def forms(request: LoweringRequest, *, every: bool) -> Iterator[tuple[str, LoweredNode]]:
    """Yield the float32 kernel, then each tile with some numbers of splits."""
    product, caps = product_of(request), request.caps
    tile = gemm.choose_tile(product, caps)
    yield "float32", gemm.lower_product(product, tile, gemm.splits_of(product, tile, caps), request)
    own = matrix_gemm.choose_tile(product, request)
    chosen = own, matrix_gemm.splits_of(product, own, caps)
    tiles = (*TILES, *(OTHER_TILES if every else ())) if caps.matrix_units else (EMULATED_TILE,)
    for tile in tiles:
        if tile.workgroup > caps.max_workgroup or not matrix_gemm.staged(tile, request):
            continue
        best = matrix_gemm.splits_of(product, tile, caps)
        for splits in sorted({1, best, 2 * best} if best > 1 else {1}):
            mark = "*" if (tile, splits) == chosen else ""
            name = f"{tile.m}x{tile.n}x{tile.k} {tile.rows}x{tile.columns} splits {splits}{mark}"
            yield name, matrix_gemm.lower_matrix_product(product, tile, splits, request)


def expected(product: Product, a: Array, b: Array) -> Array:
    a, b = (x.astype(np.float16).astype(np.float32) for x in (a, b))
    return (a.swapaxes(1, 2) if product.sides[0] == "t" else a) @ (b.swapaxes(1, 2) if product.sides[1] == "t" else b)


def torch_seconds(torch: Any, product: Product, a: Array, b: Array) -> list[float]:
    left, right = (torch.from_numpy(x).cuda().half() for x in (a, b))
    left = left.mT if product.sides[0] == "t" else left
    right = right.mT if product.sides[1] == "t" else right
    times = []
    for _ in range(RUNS + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(REPEATS):
            torch.matmul(left, right)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / REPEATS)
    return times[3:]


def report(name: str, product: Product, seconds: list[float], error: float | None = None) -> None:
    rates = [product.flops / s / 1e12 for s in seconds]
    shown = "" if error is None else f"  error {error:.1e}"
    print(
        f"  {name:34}{statistics.median(rates):8.1f} TFLOP/s ({min(rates):.1f}–{max(rates):.1f})"
        f"{1e6 * statistics.median(seconds):9.1f} us{shown}",
        flush=True,
    )


def measure(context: OpenGpu, product: Product, torch: Any, *, every: bool, check: bool) -> None:
    request = product.request(context)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, np.float32) for shape in request.inputs)
    left, right = context.upload(a, "a"), context.upload(b, "b")
    nbytes = 4 * product.groups * product.m * product.n
    target = context.buffer(nbytes, "c")
    calls = {name: bind(context, lowered, left, right, target) for name, lowered in forms(request, every=every)}
    print(f"{product.name}: {product.groups} x {product.m} x {product.n} x {product.k} {product.sides}", flush=True)
    wanted = expected(product, a, b) if check else None
    errors = {}
    for name, of in calls.items():
        context.run(of)
        if wanted is not None:
            got = context.read(target, nbytes).view(np.float32).reshape(wanted.shape)
            errors[name] = float(np.abs(got - wanted).max() / np.abs(wanted).max())
    passes = [of * REPEATS for of in calls.values()] * RUNS
    seconds = np.array(passes_seconds(context, passes, ONE_ROW, 1)).reshape(RUNS, -1).T / REPEATS
    for name, times in zip(calls, seconds.tolist(), strict=True):
        report(name, product, times, errors.get(name))
    if torch is not None:
        report("torch fp16", product, torch_seconds(torch, product, a, b))


def main() -> None:
    """Print a block for each product."""
    parser = argument_parser(__doc__)
    parser.add_argument("--device")
    parser.add_argument("--only", default="")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--all-tiles", action="store_true")
    parser.add_argument("--no-check", action="store_true")
    args = parser.parse_args()
    device = GpuDevice(args.device)
    context, torch = device.context, torch_with_cuda()
    print(f"{device.info.description}, matrix units: {context.caps.matrix_units}")
    sizes = (64, 32, 48, 80, 2, 32) if args.small else (4096, 512, 2048, 8192, 8, 512)
    for product in products(*sizes):
        if args.only in product.name:
            measure(context, product, torch, every=args.all_tiles, check=not args.no_check)


if __name__ == "__main__":
    main()
