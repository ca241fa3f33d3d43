"""What rounding to GGUF's types costs, by our encoders and by llama.cpp's: relative squared error of the same tensors.

    python -m benchmarks encoder_error SOURCE.F32.gguf QUANTISED.gguf …

The quantised files are llama.cpp's, made from the source (`llama_model_quantize`, or `compare_llamacpp.py`, which
writes them). Tensors are grouped by the type that llama.cpp chose; ours round the source's numbers to the same type.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser
from volumetric.dtypes import decode, encode
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_types import BLOCK_TYPES


def compare(source: GGUFFile, other: GGUFFile, most: int) -> dict[str, tuple[int, float, float, float]]:
    """Numbers, mean relative error of ours and of theirs, and seconds of ours, for each type."""
    errors: dict[str, list[tuple[int, float, float, float]]] = defaultdict(list)
    for name, entry in other.entries.items():
        if entry.type not in BLOCK_TYPES or name not in source.entries:
            continue
        rows = min(max(most // entry.shape[-1], 1), entry.shape[0])
        x = decode(source.packed_rows(name, 0, rows))
        start = time.perf_counter()
        packed = encode(x, entry.type)
        seconds = time.perf_counter() - start
        power = float(np.square(x, dtype=np.float64).sum()) or 1.0
        theirs = decode(other.packed_rows(name, 0, rows))
        figures = [float(np.square(values - x, dtype=np.float64).sum()) / power for values in (decode(packed), theirs)]
        errors[entry.type].append((x.size, figures[0], figures[1], seconds))
    found: dict[str, tuple[int, float, float, float]] = {}
    for kind, rows in errors.items():
        sizes, ours, others, times = zip(*rows, strict=True)
        found[kind] = sum(sizes), float(np.mean(ours)), float(np.mean(others)), sum(times)
    return found


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("quantised", type=Path, nargs="+")
    parser.add_argument("--numbers", type=int, default=1 << 18, help="numbers of each tensor that are compared")
    args = parser.parse_args()
    source = GGUFFile(args.source)
    print("| file | type | ours | llama.cpp | ours / llama.cpp | ns a number |\n| --- | --- | --- | --- | --- | --- |")
    for path in args.quantised:
        for kind, (count, ours, theirs, seconds) in compare(source, GGUFFile(path), args.numbers).items():
            ratio = f"{ours / theirs:.3f}" if theirs else "–"
            print(f"| {path.name} | {kind} | {ours:.3e} | {theirs:.3e} | {ratio} | {1e9 * seconds / count:.0f} |")


if __name__ == "__main__":
    main()
