"""Decode and prefill speed on a GPU, next to its memory bandwidth and to transformers in CUDA eager mode.

    python -m benchmarks gpu_decode MODEL [--device gpu] [--dtypes f16,int8:g32,int4:g32] [--hf DIRECTORY]

Decoding reads every resident weight once per token (of the embedding table only one row, unless it is also the output
matrix), so bandwidth / bytes is the ceiling. The bandwidth comes from torch where it sees a CUDA device (a copy, reads
and writes counted), or from --bandwidth; without either, no ceiling is shown. transformers runs where it is installed
and --hf names a directory of the same model. What is left out is told on stderr.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.timing import spread
from benchmarks.volumetric_worker import decode, prefill
from volumetric.devices.named_devices import open_device
from volumetric.loaders import open_model
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower

SHORT, LONG = 32, 512


def random_prompt(vocabulary: int, length: int) -> list[int]:
    """The same ids for every engine that has this vocabulary."""
    return np.random.default_rng(length).integers(0, vocabulary, length).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the result: speeds in tokens/s, one entry for each repetition."""

    engine: str
    decode: list[float]
    prefill: list[float]
    weight_bytes: int


def repeat(measure: Callable[[], float], times: int) -> list[float]:
    """Measure `times` times after one run that is not counted."""
    measure()
    return [measure() for _ in range(times)]


def ours(model: str, device_name: str, dtype: str | None, new_tokens: int, repeats: int) -> Row:
    loaded = open_model(model, dtype=dtype)
    device = open_device(device_name)
    plan = lower(loaded.network)
    context = min(2048, loaded.context_length or 2048)
    executable = device.compile(plan, loaded.params, RunOptions(context=context))
    vocabulary = plan.values[plan.outputs["output"]].width
    short = random_prompt(vocabulary, min(SHORT, context - new_tokens))
    long = random_prompt(vocabulary, min(LONG, context))
    try:
        return Row(
            engine=f"volumetric {dtype or 'as stored'} on {device.info.description}",
            decode=repeat(lambda: decode(executable, short, new_tokens)[0], repeats),
            prefill=repeat(lambda: prefill(executable, long), repeats),
            weight_bytes=executable.memory.weights,
        )
    finally:
        executable.close()


def missing_for_cuda(*modules: str) -> str:
    """What keeps CUDA in Python from working here, or an empty text."""
    for name in modules:
        if find_spec(name) is None:
            return f"{name} is not installed"
    import torch  # pyright: ignore[reportMissingImports]  (the peer has its own environment)

    return "" if torch.cuda.is_available() else "torch sees no CUDA device"


def cuda_bandwidth() -> float:
    """GB/s of a copy of 1 GiB within device memory, reads and writes counted; the best of ten."""
    import torch  # pyright: ignore[reportMissingImports]  (the peer has its own environment)

    source = torch.ones(1 << 28, device="cuda")
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(10):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        best = max(best, 2 * source.nbytes / (start.elapsed_time(end) / 1e3) / 1e9)
    return best


def transformers_eager(directory: Path, new_tokens: int, repeats: int) -> Row:
    """Greedy decoding with transformers as most people run it: float16, eager, its own KV cache."""
    import torch  # pyright: ignore[reportMissingImports]  (the peer has its own environment)
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]  (the peer has its own environment)

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float16).cuda().eval()
    short, long = (random_prompt(model.config.vocab_size, length) for length in (SHORT, LONG))

    def feed(ids: torch.Tensor, cache: object) -> tuple[torch.Tensor, object]:
        out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1:].argmax(-1), out.past_key_values

    @torch.inference_mode()
    def one_decode() -> float:
        token, cache = feed(torch.tensor([short], device="cuda"), None)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(new_tokens):
            token, cache = feed(token, cache)
            token.item()  # a generator hands each id to its caller
        return new_tokens / (time.perf_counter() - start)

    @torch.inference_mode()
    def one_prefill() -> float:
        start = time.perf_counter()
        feed(torch.tensor([long], device="cuda"), None)[0].item()
        return len(long) / (time.perf_counter() - start)

    size = sum(p.nbytes for p in model.parameters())
    return Row(
        engine="transformers float16, CUDA eager",
        decode=repeat(one_decode, repeats),
        prefill=repeat(one_prefill, repeats),
        weight_bytes=size,
    )


def table(rows: list[Row], bandwidth: float | None) -> str:
    lines = ["| engine | decode tok/s | of the ceiling | prefill 512 tok/s | weights MiB |", "| --- " * 5 + "|"]
    for row in rows:
        median = statistics.median(row.decode)
        share = "" if bandwidth is None else f"{median * row.weight_bytes / bandwidth / 1e9:.0%}"
        speeds = [spread(s) for s in (row.decode, row.prefill)]
        lines.append(f"| {row.engine} | {speeds[0]} | {share} | {speeds[1]} | {row.weight_bytes / 2**20:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtypes", default="", help="comma-separated; default: as stored")
    parser.add_argument("--hf", type=Path, help="directory of the same model for transformers")
    parser.add_argument("--bandwidth", type=float, help="memory bandwidth in GB/s, where torch cannot measure it")
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    args = parser.parse_args()
    no_torch, no_peer = missing_for_cuda("torch"), missing_for_cuda("torch", "transformers")
    if no_torch and args.bandwidth is None:
        print(f"no ceiling: {no_torch}; give --bandwidth", file=sys.stderr)
    if args.hf and no_peer:
        print(f"no row for transformers: {no_peer}", file=sys.stderr)
    bandwidth = args.bandwidth or (None if no_torch else cuda_bandwidth())
    rows = [ours(args.model, args.device, d or None, args.new_tokens, args.repeats) for d in args.dtypes.split(",")]
    if args.hf and not no_peer:
        rows.append(transformers_eager(args.hf, args.new_tokens, args.repeats))
    print("memory bandwidth: " + ("unknown" if bandwidth is None else f"{bandwidth:.0f} GB/s") + "\n")
    print(table(rows, bandwidth))
    if args.json:
        report = {"bandwidth": bandwidth, "rows": [{f: getattr(row, f) for f in Row.__slots__} for row in rows]}
        args.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
