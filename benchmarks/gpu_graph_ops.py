"""Speed of tensor-graph operations on a GPU at large sizes, beside PyTorch where it is installed with CUDA.

    python -m benchmarks gpu_graph_ops [--only gemm] [--device 0] [--small] [--json found.json]

Every operation runs alone: 1 to 20 times in one compute pass between two GPU timestamps, as often as fills some
milliseconds, and that 15 times after a warm-up; torch is timed the same way between two CUDA events, in float32 without
TF32. Printed are the median, the range of the 15, GFLOP/s or GB/s of the least data that must move, and the ratio of
the medians (above 1: faster than torch). `--check` compares each result with torch's, or with the interpreter's where
there is no torch (slow at these sizes; use `--small`).
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser
from volumetric.base._typing import Array
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.graph import GpuGraphs, GpuProgram
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW
from volumetric.devices.gpu.profile import passes_seconds
from volumetric.graph import GraphBuilder, interpret

RUNS = 15
PASS_SECONDS = 5e-3
MOST_REPEATS = 20


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operation: shapes of its inputs, and what it costs at least."""

    op: str
    inputs: tuple[Array, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    flops: float = 0.0
    moved: float | None = None
    torch: Callable[..., Any] | None = None


def normal(*shape: int) -> Array:
    """Random numbers, quickly: a block of them, repeated."""
    block = np.random.default_rng(0).standard_normal(min(int(np.prod(shape)), 1 << 20)).astype(np.float32)
    return np.resize(block, shape)


def gemm(m: int, n: int, k: int, *, ta: bool = False, tb: bool = False, groups: int = 1, shared: bool = False) -> Case:
    a = normal(groups, *((k, m) if ta else (m, k)))
    b = normal(1 if shared else groups, *((n, k) if tb else (k, n)))

    def run(torch: Any, a: Any, b: Any) -> Any:
        return torch.matmul(a.mT if ta else a, b.mT if tb else b)

    attrs = {"trans_a": ta, "trans_b": tb, "groups": groups, "activation": "linear"}
    return Case(op="gemm", inputs=(a, b), attrs=attrs, flops=2.0 * groups * m * n * k, torch=run)


def unary(name: str, n: int, run: Callable[..., Any]) -> Case:
    attrs = {"name": name, "alpha": 1.0, "beta": 0.0}
    return Case(op="unary", inputs=(normal(n),), attrs=attrs, moved=8.0 * n, torch=run)


def binary(name: str, a: tuple[int, ...], b: tuple[int, ...], run: Callable[..., Any]) -> Case:
    return Case(op="binary", inputs=(normal(*a), normal(*b)), attrs={"name": name}, torch=run)


def reduce(shape: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    attrs = {"name": "sum", "axes": axes}
    return Case(op="reduce", inputs=(normal(*shape),), attrs=attrs, torch=lambda t, x: x.sum(axes, keepdim=True))


def recurrent(cell: str, b: int, t: int, size: int) -> Case:
    blocks = {"lstm": 4, "gru": 3}[cell]
    states = [normal(b, size) for _ in range(2 if cell == "lstm" else 1)]
    inputs = (normal(b, t, blocks * size), 0.05 * normal(blocks * size, size), *states)
    attrs = {"cell": cell, "bias": False, "resets": False}
    return Case(op="recurrent", inputs=inputs, attrs=attrs, flops=2.0 * b * t * blocks * size * size)


def adamw(n: int) -> Case:
    attrs = {"name": "adamw", "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "in_place": False}
    scalars = np.array([1e-3, 1, 2, 2, 1], np.float32)
    inputs = (normal(n), normal(n), normal(n), np.abs(normal(n)), scalars)
    return Case(op="update", inputs=inputs, attrs=attrs, moved=28.0 * n + 24.0 * n)


def cross_entropy(rows: int, classes: int) -> Case:
    ids = np.random.default_rng(1).integers(0, classes, rows).astype(np.int32)
    attrs = {"name": "cross_entropy", "ignore_index": -100, "label_smoothing": 0.0}
    return Case(op="loss", inputs=(normal(rows, classes), ids), attrs=attrs, moved=8.0 * rows * classes)


def scatter(ids: Array, width: int) -> Case:
    """The gradient of an embedding with 32000 rows."""
    return Case(
        op="scatter_rows",
        inputs=(normal(len(ids), width), ids.astype(np.int32)),
        attrs={"rows": 32000},
        moved=4.0 * (len(ids) + 32000) * width,
        torch=lambda torch, g, ids: torch.ops.aten.embedding_dense_backward(g, ids, 32000, -1, False),
    )


def windows(n: int, c: int, side: int) -> Case:
    attrs = {"kernel": (3, 3), "stride": (1, 1), "dilation": (1, 1), "before": (1, 1), "counts": (side, side)}
    return Case(
        op="unfold",
        inputs=(normal(n, c, side, side),),
        attrs=attrs,
        torch=lambda torch, x: torch.nn.functional.unfold(x, 3, padding=1),
    )


def norm(rows: int, width: int) -> Case:
    attrs = {"kind": "layer", "eps": 1e-5, "unit_offset": False}
    return Case(
        op="norm",
        inputs=(normal(rows, width), normal(width), normal(width)),
        attrs=attrs,
        torch=lambda torch, x, g, b: torch.nn.functional.layer_norm(x, x.shape[1:], g, b),
    )


def cases(small: bool) -> dict[str, Callable[[], Case]]:
    """Name → how to make it; sizes are divided by 8 or 16 with `small`, which software adapters can bear."""
    d = 16 if small else 1
    rows, big = 8192 // d, (64 << 20) // d // d
    softmax = lambda t, x: t.softmax(x, -1)  # noqa: E731 - two lines of a table share it
    return {
        "gemm nt 4096^3": lambda: gemm(4096 // d, 4096 // d, 4096 // d, tb=True),
        "gemm nn 4096^3": lambda: gemm(4096 // d, 4096 // d, 4096 // d),
        "gemm tn 4096^3": lambda: gemm(4096 // d, 4096 // d, 4096 // d, ta=True),
        "gemm nt 512x11008x4096": lambda: gemm(512 // d, 11008 // d, 4096 // d, tb=True),
        "gemm nt 512x4096x11008": lambda: gemm(512 // d, 4096 // d, 11008 // d, tb=True),
        "gemm nt 32x4096x4096": lambda: gemm(32, 4096 // d, 4096 // d, tb=True),
        "gemm nt 1x4096x4096": lambda: gemm(1, 4096 // d, 4096 // d, tb=True),
        "gemm nt 64x512x512": lambda: gemm(64, 512, 512, tb=True),
        "gemm tn 512x512x65536": lambda: gemm(512, 512, 65536 // d, ta=True),
        "gemm nt heads 256x512x512x64": lambda: gemm(512 // d, 512 // d, 64, tb=True, groups=256 // d),
        "gemm nn heads 256x512x64x512": lambda: gemm(512 // d, 64, 512 // d, groups=256 // d),
        "unary silu": lambda: unary("silu", big, lambda t, x: t.nn.functional.silu(x)),
        "unary gelu": lambda: unary("gelu", big, lambda t, x: t.nn.functional.gelu(x)),
        "unary tanh": lambda: unary("tanh", big, lambda t, x: x.tanh()),
        "binary add": lambda: binary("add", (big,), (big,), lambda t, a, b: a + b),
        "binary mul row": lambda: binary("mul", (big // 1024, 1024), (1024,), lambda t, a, b: a * b),
        "binary add channel": lambda: binary("add", (64, 256, big >> 14), (256, 1), lambda t, a, b: a + b),
        "sum rows": lambda: reduce((rows, 4096), (1,)),
        "sum columns": lambda: reduce((rows, 4096), (0,)),
        "sum all": lambda: reduce((big,), (0,)),
        "sum batch and space": lambda: reduce((64 // d, 256, 56 * 56), (0, 2)),
        "permute heads": lambda: Case(
            op="permute",
            inputs=(normal(8, 1024 // d, 32, 128),),
            attrs={"perm": (0, 2, 1, 3)},
            torch=lambda t, x: x.permute(0, 2, 1, 3).contiguous(),
        ),
        "transpose": lambda: Case(
            op="permute", inputs=(normal(rows, rows),), attrs={"perm": (1, 0)}, torch=lambda t, x: x.mT.contiguous()
        ),
        "concat": lambda: Case(
            op="concat",
            inputs=(normal(rows, 1024), normal(rows, 2048), normal(rows, 512)),
            attrs={"axis": 1},
            torch=lambda t, *xs: t.cat(xs, 1),
        ),
        "softmax 1024": lambda: Case(op="softmax", inputs=(normal(4 * rows, 1024),), torch=softmax),
        "softmax 50000": lambda: Case(op="softmax", inputs=(normal(512 // d, 50000),), torch=softmax),
        "sparsemax 1024": lambda: Case(op="entmax", inputs=(normal(rows, 1024),), attrs={"alpha": 2.0}),
        "entmax 1024": lambda: Case(op="entmax", inputs=(normal(rows, 1024),), attrs={"alpha": 1.5}),
        "keep 8 of 1024": lambda: Case(op="keep_largest", inputs=(normal(rows, 1024),), attrs={"k": 8}),
        "layer norm 1024": lambda: norm(4 * rows, 1024),
        "gather rows": lambda: Case(
            op="gather_rows",
            inputs=(normal(32000, 1024 // d), np.arange(rows, dtype=np.int32) * 7 % 32000),
            moved=8.0 * rows * 1024 // d,
            torch=lambda t, x, ids: x[ids],
        ),
        "scatter rows": lambda: scatter((np.arange(rows, dtype=np.int32) ** 2) % 1000, 1024 // d),
        "scatter rows of any id": lambda: scatter(np.random.default_rng(2).integers(0, 32000, rows // 2), 512 // d),
        "scatter rows of words": lambda: scatter(np.random.default_rng(3).zipf(1.2, 8 * rows) % 32000, 512 // d),
        "scatter rows of one id": lambda: scatter(np.full(rows // 2, 7), 512 // d),
        "unfold 3x3": lambda: windows(32 // (d // 4 or 1), 64, 56),
        "lstm 64x128x512": lambda: recurrent("lstm", 64, 128 // d, 512 // d),
        "gru 256x128x128": lambda: recurrent("gru", 256, 128 // d, 128),
        "cross entropy 32000": lambda: cross_entropy(rows, 32000 // d),
        "adamw": lambda: adamw(big // 4),
        "sumsq": lambda: Case(op="sumsq", inputs=(normal(big // 2), normal(big // 2))),
        "fake_quant int4:g32": lambda: Case(
            op="fake_quant", inputs=(normal(rows, 4096),), attrs={"scheme": "int4:g32"}
        ),
        "fake_quant float8": lambda: Case(
            op="fake_quant", inputs=(normal(rows, 4096),), attrs={"scheme": "float8_e4m3fn"}
        ),
        "fake_quant bfloat16": lambda: Case(
            op="fake_quant", inputs=(normal(rows, 4096),), attrs={"scheme": "bfloat16"}
        ),
    }


def program_of(graphs: GpuGraphs, case: Case) -> GpuProgram:
    work = GraphBuilder()
    inputs = [
        work.input("x", x.shape, "int32" if np.issubdtype(x.dtype, np.integer) else "float32") for x in case.inputs
    ]
    graph = work.finish(work.emit(case.op, inputs, **case.attrs))
    return graphs.compile(graph, graphs.store())


def volumetric_seconds(graphs: GpuGraphs, program: GpuProgram) -> list[float]:
    """GPU seconds of one execution, measured `RUNS` times in one submission on a warm GPU."""
    [once] = passes_seconds(graphs.context, [program.calls], ONE_ROW, 1)
    repeats = int(min(max(PASS_SECONDS / max(once, 1e-7), 1), MOST_REPEATS))
    passes = [list(program.calls) * repeats] * (RUNS if once < 1 else 1)
    return [seconds / repeats for seconds in passes_seconds(graphs.context, passes, ONE_ROW, 1)]


def settle(run: Callable[[], float]) -> None:
    """Run until the times stop falling: idle GPUs clock down."""
    best, stale = run(), 0
    until = time.perf_counter() + 1.0
    while stale < 5 and time.perf_counter() < until:
        seconds = run()
        stale = 0 if seconds < 0.98 * best else stale + 1
        best = min(best, seconds)


def torch_with_cuda() -> Any:
    """The torch module if it is there and has a GPU, else None."""
    try:
        import torch  # pyright: ignore[reportMissingImports]  (compared with where it is installed)
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


def torch_seconds(torch: Any, case: Case) -> tuple[list[float], Any]:
    """Seconds of one execution in torch, and its result."""
    inputs = [torch.from_numpy(np.ascontiguousarray(x)).cuda() for x in case.inputs]
    function = case.torch
    if function is None:
        return [], None
    result = function(torch, *inputs)

    def run(repeats: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            function(torch, *inputs)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / repeats

    repeats = int(min(max(PASS_SECONDS / max(run(3), 1e-7), 1), MOST_REPEATS))
    settle(lambda: run(repeats))
    return [run(repeats) for _ in range(RUNS)], result


def worst_error(program: GpuProgram, case: Case, expected: Any) -> float:
    """Largest difference from torch, or else from the interpreter, relative to the largest magnitude."""
    if expected is not None:
        wanted = [expected.cpu().numpy()]
    else:
        wanted = interpret(program.graph, case.inputs, {}, np.float32)
    found = program.run(case.inputs)
    worst = 0.0
    for a, b in zip(found, wanted, strict=False):
        b = b.reshape(a.shape)
        there = np.isfinite(b)  # -inf marks what is left out
        worst = max(worst, float(np.abs(a[there] - b[there]).max() / max(np.abs(b[there]).max(), 1e-9)))
    return worst


def measure(graphs: GpuGraphs, name: str, case: Case, torch: Any, check: bool) -> dict[str, Any]:
    program = program_of(graphs, case)
    program.submit(case.inputs)
    written = sum(4 * program.graph.tensors[i].size for i in program.graph.outputs)
    moved = case.moved or float(sum(x.nbytes for x in case.inputs) + written)
    ours = volumetric_seconds(graphs, program)
    theirs, result = torch_seconds(torch, case) if torch is not None else ([], None)
    middle = statistics.median(ours)
    row: dict[str, Any] = {
        "case": name,
        "us": round(1e6 * middle, 1),
        "us_range": [round(1e6 * min(ours), 1), round(1e6 * max(ours), 1)],
        "gflop_s": round(case.flops / middle / 1e9) if case.flops else None,
        "gb_s": round(moved / middle / 1e9, 1),
        "dispatches": len(program.calls),
    }
    if theirs:
        row["torch_us"] = round(1e6 * statistics.median(theirs), 1)
        row["torch_us_range"] = [round(1e6 * min(theirs), 1), round(1e6 * max(theirs), 1)]
        row["ratio"] = round(statistics.median(theirs) / middle, 2)
    if check:
        row["error"] = worst_error(program, case, result)
    program.close()
    return row


def show(row: dict[str, Any]) -> str:
    rate = f"{row['gflop_s']:>7} GFLOP/s" if row["gflop_s"] else f"{row['gb_s']:>10} GB/s"
    low, high = row["us_range"]
    torch = f"  torch {row['torch_us']:>9} us, {row['ratio']}x" if "torch_us" in row else ""
    error = f"  error {row['error']:.1e}" if "error" in row else ""
    return f"{row['case']:<30}{row['us']:>10} us ({low}–{high}){rate:>18}{torch}{error}"


def chosen(names: Mapping[str, Any], only: str | None) -> Iterator[str]:
    return (name for name in names if only is None or any(part in name for part in only.split(",")))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--only", help="parts of names, separated by commas")
    parser.add_argument("--device", help="index or part of the name of the adapter")
    parser.add_argument("--small", action="store_true", help="sizes for software adapters")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    args = parser.parse_args()
    device = GpuDevice(args.device)
    graphs, torch = device.graphs(), torch_with_cuda()
    print(device.info.description, "" if torch is None else f"beside torch {torch.__version__}", flush=True)
    makers = cases(args.small)
    rows = []
    for name in chosen(makers, args.only):
        rows.append(measure(graphs, name, makers[name](), torch, args.check))
        print(show(rows[-1]), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
