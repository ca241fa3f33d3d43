"""Quantisation-aware training on handwritten digits in all 21 numeric types.

    pip install '.[data]'
    python -m benchmarks train_digits [--seeds 3] [--device cpu] [--dtypes int8,binary] [--update]

Each network is trained with the weights that its type can hold, saved, read again, and judged on the fifth of the
images that was held back; the reading must give the same outputs. `--update` writes the table into docs/training.md.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.arguments import argument_parser, write_between
from volumetric.analysis import accuracy, predict
from volumetric.builders import sequential
from volumetric.dtypes import DTYPES, Scheme
from volumetric.loaders.native_checkpoint import read_native, save_native
from volumetric.network import initialise
from volumetric.train import AdamW, ArrayData, Cosine, CrossEntropy, TrainConfig, WarmUp, train
from volumetric.train.learner_opening import open_learner
from volumetric.train.problems import digits

DOCUMENT = Path(__file__).parents[1] / "docs" / "training.md"
BEGIN, END = "<!-- digits: begin -->\n", "<!-- digits: end -->"
GOALS = {"float32": 97.0, "int8": 96.5, "int4": 95.0, "ternary": 93.0, "binary": 90.0}
EPOCHS, BATCH = 40, 32


def run(scheme: Scheme, seed: int, device: str) -> tuple[float, int]:
    """Return the accuracy in percent on images held back, and the bytes of the weights on disk."""
    problem = digits()
    data, held = ArrayData(inputs=problem.inputs, targets=problem.targets, batch_size=BATCH, seed=seed).split(0.2)
    network = sequential(64, 10, hidden=(128, 64))
    steps = EPOCHS * data.batches_per_epoch
    config = TrainConfig(
        loss=CrossEntropy(label_smoothing=0.05),
        optimiser=AdamW(lr=3e-3, weight_decay=1e-2),
        schedule=WarmUp(steps=50, then=Cosine(steps=steps - 50, floor=0.01)),
        dtype=scheme,
        epochs=EPOCHS,
    )
    result = train(network, initialise(network, seed), data, config, learner=open_learner(device))
    with tempfile.TemporaryDirectory() as home:
        save_native(Path(home) / "m", network, result.params)
        again, params, _ = read_native(Path(home) / "m")
        outputs = predict(again, params, held.inputs)
        if not np.array_equal(outputs, predict(network, result.params, held.inputs)):
            raise SystemExit(f"{scheme}: the saved network computes something else")
        size = sum(params[key].stored().nbytes for key in params if key.endswith("weight"))
    return 100 * accuracy(outputs, held.answers), size


def main() -> None:
    """Print a row for each numeric type."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", default=",".join(dtype.name for dtype in DTYPES))
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    lines = ["| type | scheme | accuracy | least … greatest | weights |", "| --- | --- | --- | --- | --- |"]
    print(*lines, sep="\n")
    for name in given.dtypes.split(","):
        scheme, began = Scheme.default(name), time.perf_counter()
        found = [run(scheme, seed, given.device) for seed in range(given.seeds)]
        scores, size = [score for score, _ in found], found[0][1]
        spread = f"{min(scores):.1f} … {max(scores):.1f}"
        lines.append(f"| {name} | `{scheme}` | {mean(scores):.2f} % | {spread} | {size:,} B |")
        goal = GOALS.get(name)
        mark = "" if goal is None else f"  goal {goal} {'reached' if mean(scores) >= goal else 'MISSED'}"
        print(f"{lines[-1]}  {time.perf_counter() - began:.0f} s{mark}", flush=True)
    if given.update:
        write_between(DOCUMENT, BEGIN, END, lines)


if __name__ == "__main__":
    main()
