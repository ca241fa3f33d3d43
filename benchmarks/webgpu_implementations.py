"""Both WebGPU implementations on one GPU, in turn: decoding, prompts, single products, and what a submission costs.

    python -m benchmarks webgpu_implementations [--device 0] [--models smollm2] [--dtypes float16,int4:g32]
        [--only choice,models,products,submission,host] [--rounds 3] [--json found.json]

- choice: what is measured to choose one (`volumetric/devices/gpu/implementation_speed.py`), and which one that is;
- models: tokens per second of decoding, of calls that read their logits, and of a prompt, for known shapes with random
  weights; whether the logits of a prompt have the same bits, and the tokens of greedy decoding are the same;
- products: microseconds of GPU time of the products of a token and of a prompt, by timestamps;
- submission: microseconds of a small program's run, see `benchmarks/small_calls.py`;
- host: microseconds of the host for each dispatch of a token, see `benchmarks/token_submission.py`.

Each round opens both, one after the other; figures are those of the rounds. ``VOLUMETRIC_WEBGPU`` is set by the
program. On a machine without a registry: ``pip install --no-index --find-links WHEELS "volumetric-engine[dawn]"``.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import small_calls, token_submission
from benchmarks.arguments import argument_parser, positive_int
from benchmarks.gpu_kernels import CONTEXT, Tiled, decode_rate, forward_rate
from benchmarks.known_shapes import MODELS, network, params
from volumetric.base.errors import GenerationError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.adapters import choose_adapter, ranked_adapters
from volumetric.devices.gpu.implementation_choice import choose_implementation, measure_implementation
from volumetric.devices.gpu.implementation_speed import measure_speed
from volumetric.devices.gpu.kernels.gemm_tiles import choose_tile
from volumetric.devices.gpu.kernels.matmul import MatmulShape, tune_matvec
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.profile import passes_seconds
from volumetric.devices.gpu.webgpu.webgpu_implementation import NAMES, VARIABLE
from volumetric.dtypes import Scheme
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids

GREEDY = 64
COLD_BYTES = 256 << 20

Measured = Iterator[tuple[str, Any]]


def models(device: GpuDevice, args: Any) -> Measured:
    for name in args.models.split(","):
        for dtype in args.dtypes.split(","):
            plan = lower(network(MODELS[name]))
            weights = params(dict(plan.params), Scheme.parse(dtype))
            executable = device.compile(plan, weights, RunOptions(context=CONTEXT, compute="float32"))
            what = f"{name} {dtype}"
            forward_rate(executable, args.rows, 1)
            decode_rate(executable, args.tokens, CONTEXT // 2)
            yield f"{what} decode tok/s", round(decode_rate(executable, args.tokens, CONTEXT // 2), 1)
            yield f"{what} calls of a row tok/s", round(forward_rate(executable, 1, 50), 1)
            yield f"{what} prompt of {args.rows} tok/s", round(forward_rate(executable, args.rows, 5))
            state = executable.new_state()
            logits = np.asarray(executable.forward(state, np.arange(args.rows, dtype=np.int32)))
            yield f"{what} logits of a prompt", logits
            try:
                yield f"{what} greedy tokens", np.array(list(islice(greedy_ids(executable, state, 1), GREEDY)))
            except GenerationError as error:  # random bits may overflow
                yield f"{what} greedy tokens", np.array([str(error)])
            executable.close()


def products(device: GpuDevice, args: Any) -> Measured:
    context = device.context
    for name in args.models.split(","):
        for dtype in args.dtypes.split(","):
            for what, (n, k, gated) in MODELS[name].products().items():
                norm = "rms" if what in ("qkv", "gate+up", "head") else None
                shape = MatmulShape(k=k, n=n, gated=gated, format=FORMATS[dtype], norm=norm)
                product = Tiled(context, shape, n, COLD_BYTES, rows=args.rows)
                token, prompt = (
                    product.calls(tune_matvec(shape, n, context.caps)),
                    product.tile_calls(choose_tile(shape, args.rows, context.caps)),
                )
                rows = product.describe(1)
                [seconds] = passes_seconds(context, [token], rows, 12)
                yield f"{name} {dtype} {what} us", round(1e6 * seconds / product.copies, 2)
                rows = product.describe(args.rows)
                [seconds] = passes_seconds(context, [prompt], rows, 6)
                yield f"{name} {dtype} {what} × {args.rows} us", round(1e6 * seconds / product.copies, 1)
                product.close()


def submission(device: GpuDevice, args: Any) -> Measured:
    for what, call, each in small_calls.ours(device):
        times: Any = call() if each == 0 else small_calls.timed(call, args.runs, each)
        yield f"{what} us", round(float(np.median(times)), 2)


def host(device: GpuDevice, args: Any) -> Measured:
    for name in args.models.split(","):
        for dtype in args.dtypes.split(","):
            executable = token_submission.compiled(device, name, dtype)
            for part, times in token_submission.host_costs(executable, args.tokens):
                yield f"{name} {dtype} {part} us a dispatch", round(float(np.median(times)), 3)
            executable.close()


def choice(device: GpuDevice, args: Any) -> Measured:
    speed = measure_speed(device.context)
    yield "token of 96 products us", round(1e6 * speed.token, 1)
    yield "prompt of 8 products us", round(1e6 * speed.prompt, 1)


PARTS: dict[str, Callable[[GpuDevice, Any], Measured]] = {
    "choice": choice,
    "models": models,
    "products": products,
    "submission": submission,
    "host": host,
}


def compared(rounds: list[Any]) -> dict[str, Any]:
    """How arrays of both implementations differ: `rounds` has one for each."""
    one, other = rounds
    if one.dtype.kind in "iuU":
        return {"equal": bool(np.array_equal(one, other)), "length": int(one.size)}
    with np.errstate(invalid="ignore"):
        apart = float(np.nanmax(np.abs(one - other))) if one.shape == other.shape else None
    equal = bool(np.array_equal(one, other, equal_nan=True))
    return {"equal": equal, "largest difference": apart, "largest value": float(np.nanmax(np.abs(one)))}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--device", help="index or part of the adapter's name; default: the best")
    parser.add_argument("--models", default="smollm2")
    parser.add_argument("--dtypes", default="float16,int4:g32")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--tokens", type=positive_int, default=256, help="tokens of a decode run")
    parser.add_argument("--rows", type=positive_int, default=512, help="tokens of a prompt")
    parser.add_argument("--runs", type=positive_int, default=2000, help="runs of `submission`")
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    args = parser.parse_args()
    measured: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    described = {}
    for _ in range(args.rounds):
        for name in NAMES:
            os.environ[VARIABLE] = name
            device = GpuDevice(args.device)
            described[name] = dict(device.info.details["implementations"][name])
            for part in args.only.split(","):
                for what, value in PARTS[part](device, args):
                    measured[what][name].append(value)
                    if not isinstance(value, np.ndarray):
                        print(f"{name}: {what}: {value}", flush=True)
            device.context.device.destroy()
    del os.environ[VARIABLE]
    rows = {what: found for what, found in measured.items() if not isinstance(found[NAMES[0]][0], np.ndarray)}
    same = {what: compared([found[name][0] for name in NAMES]) for what, found in measured.items() if what not in rows}
    adapters = ranked_adapters()
    adapter = adapters[choose_adapter(adapters, args.device)]
    chosen = choose_implementation(adapter, measure=measure_implementation)
    print(f"{adapter.info['device']}: {chosen.name}, {chosen.reason}")
    for name, facts in described.items():
        print(f"{name}: {facts}")
    print(f"{'':44} " + " ".join(f"{name:>28}" for name in NAMES) + f" {NAMES[1] + ' / ' + NAMES[0]:>12}")
    for what, found in rows.items():
        middle = [float(np.median(found[name])) for name in NAMES]
        shown = " ".join(f"{', '.join(map(str, found[name])):>28}" for name in NAMES)
        print(f"{what:44} {shown} {middle[1] / middle[0]:12.3f}")
    for what, found in same.items():
        print(f"{what:44} {found}")
    if args.json:
        facts = {"gpu": adapter.identity, "chosen": chosen.name, "why": chosen.reason, "implementations": described}
        args.json.write_text(json.dumps({**facts, "rows": rows, "same": same}, indent=1))


if __name__ == "__main__":
    main()
