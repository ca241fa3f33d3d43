"""Clocked networks: what grids learn to recall through their ticks.

    python benchmarks/systolic.py learn [--seeds 3] [--device cpu] [--update]

A 3 × 3 × 3 grid of dense layers sees one of 8 symbols a row and answers 8 rows later which it was. All have the same
layers: with links between neighbours both ways, forward alone, without links; and with links forward, but as a network
that runs row by row. `--update` writes the table into docs/clocked.md. For their speed there is
`volumetric bench --suite systolic`.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from volumetric import Clocked, Coord, Grid, Link, Network, initialise
from volumetric.layers import Dense
from volumetric.train import (
    Adam,
    Backprop,
    Batch,
    Cosine,
    CrossEntropy,
    EpochEvent,
    Mode,
    StreamData,
    Systolic,
    TrainConfig,
    train,
)

DOCUMENT = Path(__file__).parents[1] / "docs" / "clocked.md"
BEGIN, END = "<!-- recall: begin -->\n", "<!-- recall: end -->"
SIDE, WIDTH, SYMBOLS, DELAY, ROWS, BATCH = 3, 32, 8, 8, 32, 32
EPOCHS, UPDATES = 6, 50
SHOWN = (1, 2, 3, EPOCHS)
"""Epochs of the curves."""
Links = Literal["both ways", "forward", "none"]
KINDS: tuple[tuple[Links, Mode], ...] = (
    ("both ways", Systolic()),
    ("forward", Systolic()),
    ("none", Systolic()),
    ("forward", Backprop()),
)


def recalling(links: Links) -> Network:
    """A grid whose last layer names a symbol."""
    grid = Grid(SIDE, SIDE, SIDE)
    coords = [Coord(*place) for place in itertools.product(range(SIDE), repeat=3)]
    layers = {c: Dense(in_features=WIDTH, out_features=WIDTH, activation="tanh") for c in coords}
    layers[coords[-1]] = Dense(in_features=WIDTH, out_features=SYMBOLS)
    made: list[Link] = []
    for a, b in itertools.combinations(coords, 2):
        if abs(a.z - b.z) + abs(a.y - b.y) + abs(a.x - b.x) != 1 or links == "none":
            continue
        if coords.index(b) != coords.index(a) + 1:  # those follow in reading order
            made.append(Link(kind="activation", source=a, target=b, combine="add", delay=1))
        if links == "both ways" and b != coords[-1]:
            made.append(Link(kind="activation", source=b, target=a, combine="add", delay=1))
    return Network(grid=grid, layers=layers, links=tuple(made), input_shape=(WIDTH,), input_dtype="float32")


def recall(seed: int, epoch: int, batches: int) -> Iterator[Batch]:
    """Symbols, and those of `DELAY` rows before; the first rows have none to answer."""
    rng = np.random.default_rng((seed, epoch))
    for _ in range(batches):
        ids = rng.integers(0, SYMBOLS, (BATCH, ROWS))
        answers = np.concatenate([np.full((BATCH, DELAY), -100), ids[:, :-DELAY]], 1)
        yield Batch(np.eye(WIDTH, dtype=np.float32)[ids], answers)


def curve(links: Links, mode: Mode, seed: int, device: str) -> list[float]:
    """Percent of new symbols that are recalled, epoch by epoch."""
    network = recalling(links)
    found: list[float] = []

    def note(event: object) -> None:
        if isinstance(event, EpochEvent) and event.accuracy is not None:
            found.append(100 * event.accuracy)

    config = TrainConfig(
        mode=mode,
        loss=CrossEntropy(),
        optimiser=Adam(lr=3e-3),
        schedule=Cosine(steps=EPOCHS * UPDATES),
        clip=1.0,
        epochs=EPOCHS,
        accuracy=True,
    )
    train(
        Clocked(network=network) if isinstance(mode, Systolic) else network,
        initialise(network, seed),
        StreamData(lambda epoch: recall(seed, epoch, UPDATES)),
        config,
        validation=StreamData(lambda epoch: recall(seed, 10_000, 8)),
        reporters=[note],
        device=device,
    )
    return found


def learn(given: Any) -> None:
    """Print curves, and write them into the document if asked to."""
    lines = [
        "| links | runs | weights | " + " | ".join(f"epoch {n}" for n in SHOWN) + " | least … greatest |",
        "| --- " * (len(SHOWN) + 4) + "|",
    ]
    print(*lines, sep="\n")
    for links, mode in KINDS:
        found = np.array([curve(links, mode, seed, given.device) for seed in range(given.seeds)])
        size = sum(store.values().size for store in initialise(recalling(links)).values())
        means = " | ".join(f"{found[:, n - 1].mean():.1f} %" for n in SHOWN)
        runs = "tick by tick" if isinstance(mode, Systolic) else "row by row"
        lines.append(f"| {links} | {runs} | {size} | {means} | {found[:, -1].min():.1f} … {found[:, -1].max():.1f} |")
        print(lines[-1], flush=True)
    if given.update:
        text = DOCUMENT.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        DOCUMENT.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1], encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the verb."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    sub = verbs.add_parser("learn")
    sub.add_argument("--device", default="cpu")
    sub.add_argument("--seeds", type=int, default=3)
    sub.add_argument("--update", action="store_true")
    sub.set_defaults(verb=learn)
    given = parser.parse_args(arguments)
    given.verb(given)


if __name__ == "__main__":
    main()
