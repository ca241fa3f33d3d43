"""GPU speed without a model file: decode and prefill of known shapes with random weights, and sweeps of matvec cuts.

    python -m benchmarks gpu_kernels models [--models smollm2,tinyllama,llama7b] [--dtypes float16,q4_k] [--int8]
        [--compute auto]
    python -m benchmarks gpu_kernels batches [--models …] [--dtypes …] [--batches 1,4,16,64] [--compute auto]
    python -m benchmarks gpu_kernels sweep [--models …] [--dtypes …] [--int8]
    python -m benchmarks gpu_kernels sweep-batches [--models …] [--dtypes …] [--batches 2,4,8,16,64]

`models` prints tokens per second and where a token's GPU time goes, `batches` the same of several sequences together
beside one, in turn. `sweep` searches for faster cuts of these shapes'
matrix-vector products, as `volumetric warmup` does, and prints the best beside the default: the evidence behind
`devices/gpu/kernels/matmul.tune_matvec`; `sweep-batches` tries cuts for several rows, and the tiles for
prompts beside them.
Weights are random bits with small scales; numbers of the results mean nothing. Run `python -m pytest tests/gpu` for
correctness on the same device.
"""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser, numbers
from benchmarks.known_shapes import MODELS, network, params
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.autotune import TimedProduct, search_tunings
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.kernels import gemm_tiles
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.gemm_tiles import GemmTile, choose_tile
from volumetric.devices.gpu.kernels.matmul import (
    MatmulShape,
    MatvecTuning,
    fits_memory,
    matvec_tuning,
    tune_batch,
    tune_matvec,
)
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.devices.gpu.profile import passes_seconds
from volumetric.dtypes import Scheme
from volumetric.run import Executable, RunOptions, lower
from volumetric.run.call_batch import greedy_ids

CONTEXT = 1024


class Tiled(TimedProduct):
    """A product that runs by tiles, too."""

    def __init__(self, context: OpenGpu, shape: MatmulShape, units: int, cold_bytes: int, *, rows: int) -> None:
        super().__init__(context, shape, units, cold_bytes, rows=rows)
        self._stats = context.buffer(16 * rows, "row statistics")

    def tile_calls(self, tile: GemmTile) -> list[BoundDispatch]:
        """The product by tiles with each copy in turn."""
        dispatch = gemm_tiles.gemm(self._shape, self._context.caps, tile, first=0, units=self._units)
        more = {"ctl": self._control} | ({"stats": self._stats} if self._shape.norm else {})
        return [self._context.bind(dispatch, {**self._shared, **more, "weights": w}) for w in self._weights]

    def close(self) -> None:
        """Free the copies."""
        self._context.free(self._stats)
        super().close()


def decode_rate(executable: Executable, tokens: int, position: int) -> float:
    state: Any = executable.new_state()
    state.advance(position)
    stream = greedy_ids(executable, state, 1)
    next(stream)
    start = time.perf_counter()
    for _ in range(tokens):
        next(stream)
    rate = tokens / (time.perf_counter() - start)
    stream.close()
    return rate


def batch_rates(executable: Executable, count: int, tokens: int, position: int) -> list[float]:
    """Tokens per second of `count` sequences together, three times; of fewer `tokens` where the context ends before."""
    tokens = min(tokens, (CONTEXT - position) // 3 - 1)
    states: list[Any] = [executable.new_state() for _ in range(count)]
    for state in states:
        state.advance(position)
    found = []
    stream = executable.greedy(states, list(range(count)))
    next(stream)
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(tokens):
            next(stream)
        found.append(round(count * tokens / (time.perf_counter() - start), 1))
    stream.close()
    return found


def run_batches(
    device: GpuDevice, names: list[str], dtypes: list[str], options: RunOptions, batches: list[int], tokens: int
) -> list[dict[str, Any]]:
    found = []
    for name, dtype in itertools.product(names, dtypes):
        model = MODELS[name]
        plan = lower(network(model))
        executable = device.compile(plan, params(dict(plan.params), Scheme.parse(dtype)), options)
        batch_rates(executable, 1, tokens, CONTEXT // 4)
        for count in batches:
            one, rates = batch_rates(executable, 1, tokens, CONTEXT // 4), batch_rates(executable, count, tokens, 256)
            states = [executable.new_state() for _ in range(count)]
            for state in states:
                state.advance(256)
            times = executable.kernel_times(states)
            row = {
                "model": name,
                "dtype": dtype,
                "sequences": count,
                "one_tok_s": one,
                "tok_s": rates,
                "times_one": round(sorted(rates)[1] / sorted(one)[1], 2),
                "us": {t.label: (t.count, round(1e6 * t.seconds / t.count, 2)) for t in times},
            }
            print(json.dumps(row), flush=True)
            found.append(row)
        executable.close()
    return found


def run_batch_sweep(
    device: GpuDevice, names: list[str], dtypes: list[str], batches: list[int], cold_mib: int
) -> list[dict[str, Any]]:
    """Time cuts for several rows, and the tile that prompts would take, of each product."""
    found = []
    context, caps = device.context, device.context.caps
    for name, dtype in itertools.product(names, dtypes):
        for what, (n, k, gated) in MODELS[name].products().items():
            norm = "rms" if what in ("qkv", "gate+up", "head") else None
            shape = MatmulShape(k=k, n=n, gated=gated, format=FORMATS[dtype], norm=norm)
            product = Tiled(context, shape, n, cold_mib << 20, rows=max(batches))
            for rows in batches:
                default = tune_batch(shape, n, caps, rows)
                cuts = {
                    default: product.calls(default),
                    **{c: product.calls(c) for c in batch_cuts(shape, n, caps, rows)},
                }
                tile = choose_tile(shape, rows, caps)
                passes = [*cuts.values(), product.tile_calls(tile)]
                seconds = passes_seconds(context, passes, product.describe(rows), 6)
                times = {cut: value / product.copies for cut, value in zip(cuts, seconds[:-1], strict=True)}
                best = sorted(times, key=lambda cut: times[cut])[:3]
                row = {
                    "model": name,
                    "dtype": dtype,
                    "product": what,
                    "rows": rows,
                    "default": [cut_text(default), round(1e6 * times[default], 2)],
                    "best": [[cut_text(cut), round(1e6 * times[cut], 2)] for cut in best],
                    "tile": [f"{tile.m}x{tile.n}x{tile.k}x{tile.slices}", round(1e6 * seconds[-1] / product.copies, 2)],
                    "gb_s": round(shape.parts * n * shape.format.row_bytes(k) / times[best[0]] / 1e9),
                    "tried": len(cuts),
                }
                print(json.dumps(row), flush=True)
                found.append(row)
            product.close()
    return found


def batch_cuts(shape: MatmulShape, units: int, caps: Caps, rows: int) -> list[MatvecTuning]:
    """Cuts that differ in all choices, as far as they are legal and leave the device work."""
    found = set()
    choices = itertools.product((8, 16, 32), (1, 2, 4, 8), (128, 256, 512), (1, 2), (4, 8, 16))
    for team, outputs, workgroup, unroll, batch in choices:
        if batch > rows or (batch < rows and batch < 8) or outputs * shape.parts * batch > 64:
            continue
        if (unroll == 2 and outputs * shape.parts > 4) or (unroll == 1 and outputs * shape.parts < 4):
            continue
        groups = -(-units // (workgroup // team * outputs)) * -(-rows // batch)
        if groups < min(48, units // 16) or (units > 8192 and outputs * shape.parts == 1):
            continue
        cut = matvec_tuning(shape, caps, team=team, rows=outputs, workgroup=workgroup, unroll=unroll, batch=batch)
        wasteful = cut.chunk * cut.chunks >= 1.5 * max(shape.format.pieces(shape.k), cut.team)
        if fits_memory(shape, cut, caps) and not wasteful:
            found.add(cut)
    return sorted(found, key=str)


def forward_rate(executable: GpuExecutable, rows: int, repeats: int) -> float:
    """Tokens per second of calls of `rows` rows that read their logits back."""
    ids = np.arange(rows, dtype=np.int32)
    state = executable.new_state()
    executable.forward(state, ids)
    best = 0.0
    for _ in range(repeats):
        state.reset()
        start = time.perf_counter()
        executable.forward(state, ids)
        best = max(best, rows / (time.perf_counter() - start))
    return best


def run_models(
    device: GpuDevice, names: list[str], dtypes: list[str], options: RunOptions, tokens: int, rows: int
) -> list[dict[str, Any]]:
    found = []
    for name, dtype in itertools.product(names, dtypes):
        model = MODELS[name]
        plan = lower(network(model))
        start = time.perf_counter()
        executable = device.compile(plan, params(dict(plan.params), Scheme.parse(dtype)), options)
        loaded = time.perf_counter() - start
        forward_rate(executable, rows, 1)
        decode_rate(executable, tokens, CONTEXT // 2)
        state = executable.new_state()
        state.advance(CONTEXT // 2)
        decode_times = executable.kernel_times([state])
        body_times = executable.kernel_times([state], "body", rows)
        gpu = next(t.seconds for t in decode_times if t.label == "all")
        row = {
            "model": name,
            "dtype": dtype,
            "compute": options.compute,
            "kv_dtype": options.kv_dtype,
            "load_s": round(loaded, 2),
            "weights_mib": executable.memory.weights >> 20,
            "decode_tok_s": [round(decode_rate(executable, tokens, CONTEXT // 2), 1) for _ in range(3)],
            "one_row_calls_tok_s": round(forward_rate(executable, 1, 50), 1),
            "gpu_only_tok_s": round(1 / gpu, 1),
            "gb_s": round(executable.memory.weights / gpu / 1e9),
            f"prefill_{rows}_tok_s": round(forward_rate(executable, rows, 5)),
            "decode_us": {t.label: (t.count, round(1e6 * t.seconds / t.count, 2)) for t in decode_times},
            "prefill_us": {t.label: (t.count, round(1e6 * t.seconds / t.count, 1)) for t in body_times},
        }
        print(json.dumps(row, indent=1), flush=True)
        found.append(row)
        executable.close()
    return found


def run_sweep(
    device: GpuDevice, names: list[str], dtypes: list[str], int8: bool, cold_mib: int
) -> list[dict[str, Any]]:
    found = []
    context = device.context
    for name, dtype in itertools.product(names, dtypes):
        for product, (n, k, gated) in MODELS[name].products().items():
            norm = "rms" if product in ("qkv", "gate+up", "head") else None
            shape = MatmulShape(k=k, n=n, gated=gated, format=FORMATS[dtype], norm=norm, int8=int8)
            default = tune_matvec(shape, n, context.caps)
            times = search_tunings(context, shape, n, default, cold_bytes=cold_mib << 20)
            best = min(times, key=lambda cut: times[cut])
            nbytes = shape.parts * n * shape.format.row_bytes(k)
            row = {
                "model": name,
                "dtype": dtype,
                "product": product,
                "default": cut_text(default),
                "default_us": round(1e6 * times[default], 2),
                "best": cut_text(best),
                "best_us": round(1e6 * times[best], 2),
                "best_gb_s": round(nbytes / times[best] / 1e9),
                "tried": len(times),
            }
            print(json.dumps(row), flush=True)
            found.append(row)
    return found


def cut_text(cut: MatvecTuning) -> str:
    batch = f" batch {cut.batch}" if cut.batch > 1 else ""
    return f"team {cut.team} rows {cut.rows} workgroup {cut.workgroup} unroll {cut.unroll}{batch}"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=["models", "batches", "sweep", "sweep-batches"])
    parser.add_argument("--device", help="index or part of the adapter's name; default: the best")
    parser.add_argument("--models", default="smollm2,tinyllama,llama7b")
    parser.add_argument("--dtypes", default="float16,int4:g32")
    parser.add_argument("--int8", action="store_true", help="int8 activations where weights are integers")
    computes = ["float32", "float16", "auto"]
    parser.add_argument("--compute", choices=computes, default="float32", help="of `models` and `batches`")
    parser.add_argument("--kv-dtype", choices=["auto", "float32", "float16"], default="auto", help="cache of `models`")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of a decode run")
    parser.add_argument("--rows", type=int, default=512, help="tokens of a prefill call")
    parser.add_argument("--batches", default="1,4,16,64", help="sequences of `batches`, rows of `sweep-batches`")
    parser.add_argument("--cold-mib", type=int, default=256, help="weights that a sweep reads between two uses of one")
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    args = parser.parse_args()
    device = GpuDevice(args.device)
    print(device.info.description, device.context.caps, flush=True)
    names, dtypes = args.models.split(","), args.dtypes.split(",")
    batches = numbers(args.batches)
    if args.what in ("models", "batches"):
        compute = "int8" if args.int8 else args.compute
        options = RunOptions(context=CONTEXT, compute=compute, kv_dtype=args.kv_dtype)
        if args.what == "models":
            found = run_models(device, names, dtypes, options, args.tokens, args.rows)
        else:
            found = run_batches(device, names, dtypes, options, batches, args.tokens)
    elif args.what == "sweep-batches":
        found = run_batch_sweep(device, names, dtypes, batches, args.cold_mib)
    else:
        found = run_sweep(device, names, dtypes, args.int8, args.cold_mib)
    if args.json:
        args.json.write_text(json.dumps({"device": device.info.description, "rows": found}, indent=1))


if __name__ == "__main__":
    main()
