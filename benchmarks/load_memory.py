"""Peak memory of opening a model and generating one token, next to the size of its file.

    python -m benchmarks load_memory MODEL.gguf [--device cpu] [--context 512] [--limit 1.15]

A fresh process opens the model, so that nothing else counts. With --limit, a peak beyond that many times the file is an
error. `random_model.py OUT.gguf --shape 7b` writes a file of 4.1 GB to try it with.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.arguments import argument_parser

CHILD = """
import sys
import volumetric
with volumetric.load(sys.argv[1], device=sys.argv[2], context=int(sys.argv[3])) as model:
    stats = model.generate([1], max_tokens=1, ignore_eos=True).stats
    memory = model.executable.memory
    print(stats.peak_bytes, model.load_seconds, memory.weights, memory.state_per_token)
"""


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--limit", type=float)
    args = parser.parse_args()
    command = [sys.executable, "-c", CHILD, str(args.model), args.device, str(args.context)]
    start = time.perf_counter()
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    seconds, size = time.perf_counter() - start, args.model.stat().st_size
    if told[0] == "None":
        sys.exit("this system does not tell the peak memory of a process")
    peak = int(told[0])
    print(f"file {size / 1e6:.0f} MB, weights on the device {int(told[2]) / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB")
    print(f"peak / file {peak / size:.3f}; {int(told[3])} bytes a token of context")
    print(f"load {float(told[1]):.1f} s, process with one token {seconds:.1f} s")
    if args.limit is not None and peak > args.limit * size:
        sys.exit(f"the peak is more than {args.limit} times the file")


if __name__ == "__main__":
    main()
