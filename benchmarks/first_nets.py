"""XOR, digits, text and CartPole as programs of each library: lines and seconds side by side.

    python -m benchmarks first_nets --peers PYTHON [--only xor digits text cartpole] [--rounds 3] [--limit 300]

The programs stand in `benchmarks/first_programs/`, one for each task and library, written as its documentation does.
Tasks are alike: XOR by 300 updates of a net of 8 hidden units (neat-python: a population of 150); digits by a CNN of
two convolutions in 15 epochs; text by an LSTM of 128 units in 15 epochs over 21 kB, and then 100 bytes drawn from it;
CartPole until it is solved, by the policy gradient, or by evolution here and in neat-python. Lines count neither
comments nor blank ones, after the same formatter; a configuration file counts. A run is a new process from start to
end, imports and compilation included. Libraries take turns; the first run of each fills its caches and is printed
apart, as "first". `PYTHON` has torch, equinox, optax, tinygrad, neat-python, gymnasium and scikit-learn; without it
only the programs of this package run. tinygrad needs clang for its CPU backend.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.arguments import argument_parser

HERE = Path(__file__).parent / "first_programs"
TEXT = Path(__file__).parent / "data" / "esther.txt"
TASKS = ("xor", "digits", "text", "cartpole")
OURS = "volumetric"
PEERS = ("torch", "equinox", "tinygrad", "neat")


def lines_of(task: str, library: str) -> int:
    """Return the lines of a program and of its configuration, without comments and blank ones."""
    count = 0
    for suffix, mark in ((".py", "#"), (".ini", "#")):
        path = (HERE / f"{task}_{library}").with_suffix(suffix)
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            count += sum(bool(line.strip()) and not line.strip().startswith(mark) for line in lines)
    return count


def programs() -> dict[str, list[str]]:
    """Return the libraries that have a program for each task, ours first."""
    return {task: [library for library in (OURS, *PEERS) if (HERE / f"{task}_{library}.py").exists()] for task in TASKS}


def run_program(python: str, task: str, library: str, home: Path, limit: float) -> tuple[float, str]:
    """Return the seconds that a program ran, and the last line that it printed; NaN beyond the limit."""
    for path in HERE.glob(f"{task}_{library}.*"):
        shutil.copy(path, home)
    shutil.copy(TEXT, home)
    root = str(Path(__file__).parents[1])
    search = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")])) if library == OURS else ""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [python, f"{task}_{library}.py"],
            cwd=home,
            env={**os.environ, "PYTHONPATH": search},
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return float("nan"), f"longer than {limit:.0f} s"
    seconds = time.perf_counter() - start
    said = (done.stdout if done.returncode == 0 else done.stderr).strip()
    return seconds, " ".join((said.splitlines() or [""])[-1 if done.returncode else 0 :])[:110]


def measure(task: str, libraries: Sequence[str], pythons: dict[str, str], rounds: int, limit: float) -> None:
    """Run the programs of a task in turn, and print a row for each."""
    times: dict[str, list[float]] = {library: [] for library in libraries}
    said: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(1 + rounds):
            for library in libraries:
                if times[library] and times[library][0] != times[library][0]:
                    continue  # it was longer than the limit
                seconds, said[library] = run_program(pythons[library], task, library, Path(home), limit)
                times[library].append(seconds)
    for library in libraries:
        first, *others = times[library]
        spread = f"{median(others):.1f} ({min(others):.1f} to {max(others):.1f})" if others else "–"
        print(
            f"| {task} | {library} | {lines_of(task, library)} | {first:.1f} | {spread} | {said[library]} |", flush=True
        )


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--peers", help="a Python that has the other libraries")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a run")
    chosen = parser.parse_args()
    pythons = {OURS: sys.executable, **(dict.fromkeys(PEERS, chosen.peers) if chosen.peers else {})}
    print("| task | library | lines | first, s | then, s | printed |\n| --- | --- | --- | --- | --- | --- |")
    for task in chosen.only:
        measure(task, [one for one in programs()[task] if one in pythons], pythons, chosen.rounds, chosen.limit)


if __name__ == "__main__":
    main()
