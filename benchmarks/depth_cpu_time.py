"""Decoding and prompts at several depths and sizes of batch, on one thread, in tokens per second of processor time.

    python -m benchmarks depth_cpu_time MODEL [--depths 0,512,2048] [--batches 1,4,16] [--prompts 128,512,2048]

`volumetric bench -d … -b …` tells the same by the clock, for machines that are idle; here time in which other programs
held the core does not count. All cases take turns.
"""

from __future__ import annotations

import time

import volumetric
from benchmarks.arguments import argument_parser
from benchmarks.timing import spread
from volumetric.bench.case_runs import Case, measure

TOKENS = 32
"""Tokens of each sequence that decodes."""


def sizes(text: str) -> list[int]:
    """Numbers in a list with commas."""
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    """Measure, and print a table."""
    parser = argument_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--depths", type=sizes, default=[0, 512, 2048])
    parser.add_argument("--batches", type=sizes, default=[1, 4, 16])
    parser.add_argument("--prompts", type=sizes, default=[128, 512, 2048])
    parser.add_argument("--kv-dtype", choices=("auto", "float32", "float16", "int8"), default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows = [
        [
            *(Case(generate=TOKENS, depth=depth, batch=batch) for batch in given.batches),
            *(Case(prompt=prompt, depth=depth) for prompt in given.prompts),
        ]
        for depth in given.depths
    ]
    most = max(case.context for row in rows for case in row)
    model = volumetric.load(given.model, device="cpu", context=most, threads=1, kv_dtype=given.kv_dtype, offline=True)
    rates: dict[Case, list[float]] = {case: [] for row in rows for case in row}
    for _ in range(given.rounds):
        for case, found in rates.items():
            found += measure(model.executable, model.info.vocab_size, case, repetitions=1, clock=time.process_time)
    heads = [*(f"decode {n}" for n in given.batches), *(f"a prompt of {n}" for n in given.prompts)]
    print("| tokens in the cache |", " | ".join(heads), "|")
    print("| --- " * (len(heads) + 1) + "|")
    for depth, row in zip(given.depths, rows, strict=True):
        cells = [spread(r) for r in (rates[case] for case in row)]
        print(f"| {depth} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
