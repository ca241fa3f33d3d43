"""Target propagation beside backprop: what networks learn of handwritten digits, and what an update costs.

    pip install '.[data]'
    python -m benchmarks target_propagation learn [--seeds 3] [--device cpu] [--update]
    python -m benchmarks target_propagation speed [--rounds 30] [--device cpu]

Learning: 64-128-128-10 networks, Adam, a cosine schedule, 30 epochs, four fifths of 1797 digits to learn from and the
rest to judge by. `--update` writes the table into docs/training.md. Speed: time of an update over that of backprop's of
the same network and batch, alternating in one process; median, and least … greatest of the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from benchmarks.arguments import argument_parser, write_between
from volumetric.builders import sequential
from volumetric.builders.sequential import chain
from volumetric.layers import Dense, Discrete, LayerSpec
from volumetric.network import Network, initialise
from volumetric.train import (
    Adam,
    ArrayData,
    Backprop,
    Batch,
    Cosine,
    CrossEntropy,
    LearnerOptions,
    Mode,
    TargetPropagation,
    TrainConfig,
    open_learner,
    train,
)
from volumetric.train.problems import digits

DOCUMENT = Path(__file__).parents[1] / "docs" / "training.md"
BEGIN, END = "<!-- targets: begin -->\n", "<!-- targets: end -->"
EPOCHS = 30
SHOWN = (1, 3, 10, EPOCHS)
"""Epochs of the curves."""
DIFFERENCE = TargetPropagation(gradient_scale=0.5, inverse_rate=2e-3)
MODES: dict[str, Mode] = {
    "backprop": Backprop(),
    "targets along the gradient": TargetPropagation(method="gradient"),
    "difference, learned inverses": DIFFERENCE,
    "difference, from the output on": TargetPropagation(top="output", inverse_rate=2e-3),
    "difference, transposed weights": TargetPropagation(inverse="transpose"),
    "difference, pseudo-inverses": TargetPropagation(inverse="pinv"),
}


Function = Literal["step", "sign", "ternary"]
NETS: tuple[tuple[Function, int], ...] = (
    ("sign", 2),
    ("step", 2),
    ("ternary", 2),
    ("sign", 1),
    ("sign", 3),
    ("sign", 4),
)
"""Discrete networks: what crosses, and how many hidden layers."""


def discrete(function: Function, layers: int) -> Network:
    """Hidden layers of tanh of which only one of two or three numbers crosses."""
    specs: list[LayerSpec] = []
    for i in range(layers):
        specs += [Dense(in_features=128 if i else 64, out_features=128, activation="tanh"), Discrete(function=function)]
    return chain([*specs, Dense(in_features=128, out_features=10)], (64,))


def curve(network: Network, mode: Mode, seed: int, device: str) -> list[float]:
    """Return the accuracy in percent on images held back, after each epoch."""
    problem = digits()
    data, held = ArrayData(inputs=problem.inputs, targets=problem.targets, batch_size=32, seed=seed).split(0.2)
    config = TrainConfig(
        loss=CrossEntropy(),
        optimiser=Adam(),
        schedule=Cosine(steps=EPOCHS * data.batches_per_epoch, floor=0.01),
        epochs=EPOCHS,
        mode=mode,
        accuracy=True,
        seed=seed,
    )
    result = train(network, initialise(network, seed), data, config, validation=held, device=device)
    return [100 * (event.accuracy or 0.0) for event in result.history]


def learn(given: Any) -> None:
    """Print, and perhaps write, the curves."""
    rows: list[tuple[str, str, Network, Mode]] = [
        ("128-128 tanh", name, sequential(64, 10, hidden=(128, 128), activation="tanh"), mode)
        for name, mode in MODES.items()
    ]
    rows += [
        (f"{layers} × 128 {function}", name, discrete(function, layers), MODES[name])
        for function, layers in NETS
        for name in ("backprop", "difference, learned inverses")
    ]
    lines = [
        "| hidden layers | mode | " + " | ".join(f"epoch {n}" for n in SHOWN) + " | least … greatest |",
        "| --- " * (len(SHOWN) + 3) + "|",
    ]
    print(*lines, sep="\n")
    for hidden, name, network, mode in rows:
        found = np.array([curve(network, mode, seed, given.device) for seed in range(given.seeds)])
        means = " | ".join(f"{found[:, n - 1].mean():.1f} %" for n in SHOWN)
        lines.append(f"| {hidden} | {name} | {means} | {found[:, -1].min():.1f} … {found[:, -1].max():.1f} |")
        print(lines[-1], flush=True)
    if given.update:
        write_between(DOCUMENT, BEGIN, END, lines)


def speed(given: Any) -> None:
    """Print the cost of updates."""
    for hidden, rows in (((256, 256), 64), ((512, 512, 512), 128)):
        network = sequential(784, 10, hidden=hidden, activation="tanh")
        rng = np.random.default_rng(0)
        batch = Batch(rng.standard_normal((rows, 784)).astype(np.float32), rng.integers(0, 10, rows))
        learners = {}
        for name, mode in MODES.items():
            options = LearnerOptions(loss=CrossEntropy(), optimiser=Adam(), mode=mode)
            learners[name] = open_learner(given.device)(network, initialise(network), options)
            learners[name].step([batch], rate=1e-3)
        taken: dict[str, list[float]] = {name: [] for name in learners}
        for _ in range(given.rounds):
            for name, learner in learners.items():
                began = time.perf_counter()
                learner.step([batch], rate=1e-3)  # its loss comes back: the device has finished
                taken[name].append(1e3 * (time.perf_counter() - began))
        base = median(taken["backprop"])
        print(f"784-{'-'.join(map(str, hidden))}-10, {rows} rows, {given.device}")
        for name, times in taken.items():
            spread = f"({min(times):.2f} … {max(times):.2f})"
            print(f"  {name:32} {median(times):8.2f} ms {spread}  {median(times) / base:.2f} ×")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the two."""
    parser = argument_parser(__doc__)
    verbs = parser.add_subparsers(required=True)
    for verb in (learn, speed):
        sub = verbs.add_parser(verb.__name__)
        sub.add_argument("--device", default="cpu")
        sub.set_defaults(verb=verb)
        if verb is learn:
            sub.add_argument("--seeds", type=int, default=3)
            sub.add_argument("--update", action="store_true")
        else:
            sub.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args(arguments)
    given.verb(given)


if __name__ == "__main__":
    main()
