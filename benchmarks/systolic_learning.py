"""Clocked networks: what grids learn through their ticks, beside the same layers without ticks.

    python -m benchmarks systolic_learning learn [--only recall,far,letters,online] [--seeds 3] [--device cpu]
        [--update]

All networks are 3 × 3 × 3 grids of dense layers of 32: with links between neighbours both ways, forward alone, or
without; and with links forward, but as a network that runs row by row. ``recall``: of 8 symbols, one a row, name that
of 8 rows ago. ``far``: that of 32 rows ago; those links forward that do not only repeat the order of the layers take
`FAR_LINK` ticks. ``letters``: the next letter of English text, the topics of Python's own help. ``online``: ``recall``
by targets while the grid runs. `--update` writes the tables into docs/clocked.md. For their speed there is
`python -m benchmarks systolic`.
"""

from __future__ import annotations

import itertools
import math
import pydoc_data.topics
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from benchmarks.arguments import argument_parser
from volumetric import Clocked, Coord, Grid, Link, Network, initialise
from volumetric.layers import Dense
from volumetric.train import (
    Adam,
    Backprop,
    Batch,
    Constant,
    Cosine,
    CrossEntropy,
    EpochEvent,
    Mode,
    StreamData,
    Systolic,
    TargetPropagation,
    TrainConfig,
    train,
)

DOCUMENT = Path(__file__).parents[1] / "docs" / "clocked.md"
SIDE, WIDTH, SYMBOLS, LETTERS, BATCH = 3, 32, 8, 27, 32
FAR_LINK, LETTER_LINK = 4, 2
"""Ticks that links forward take."""
Links: TypeAlias = Literal["both ways", "forward", "none"]
Draw: TypeAlias = Callable[[int, int, int], Iterator[Batch]]
"""Seed, epoch and number of batches → these."""


def grid_of(links: Links, outputs: int, *, forward: int = 1) -> Network:
    """A grid whose last layer names one of `outputs`."""
    coords = [Coord(*place) for place in itertools.product(range(SIDE), repeat=3)]
    layers = {c: Dense(in_features=WIDTH, out_features=WIDTH, activation="tanh") for c in coords}
    layers[coords[-1]] = Dense(in_features=WIDTH, out_features=outputs)
    made: list[Link] = []
    for a, b in itertools.combinations(coords, 2):
        if abs(a.z - b.z) + abs(a.y - b.y) + abs(a.x - b.x) != 1 or links == "none":
            continue
        if coords.index(b) != coords.index(a) + 1:  # those follow in reading order
            made.append(Link(kind="activation", source=a, target=b, combine="add", delay=forward))
        if links == "both ways" and b != coords[-1]:
            made.append(Link(kind="activation", source=b, target=a, combine="add", delay=1))
    grid = Grid(SIDE, SIDE, SIDE)
    return Network(grid=grid, layers=layers, links=tuple(made), input_shape=(WIDTH,), input_dtype="float32")


def recall(late: int, rows: int, seed: int, epoch: int, batches: int) -> Iterator[Batch]:
    """Symbols, and those of some rows before; the first rows have none to answer."""
    rng = np.random.default_rng((seed, epoch))
    for _ in range(batches):
        ids = rng.integers(0, SYMBOLS, (BATCH, rows))
        answers = np.concatenate([np.full((BATCH, late), -100), ids[:, :-late]], 1)
        yield Batch(np.eye(WIDTH, dtype=np.float32)[ids], answers)


@cache
def text() -> np.ndarray:
    """Letters of English, 0 for all between two words."""
    topics = pydoc_data.topics.topics
    words = re.sub("[^a-z]+", " ", " ".join(topics[name] for name in sorted(topics)).lower())
    return np.array([max(ord(letter) - ord("a") + 1, 0) for letter in words])


def letters(rows: int, seed: int, epoch: int, batches: int) -> Iterator[Batch]:
    """Letters, and those that follow; what is judged (epoch `HELD`) comes from the last tenth of the text."""
    rng, whole = np.random.default_rng((seed, epoch)), text()
    cut = len(whole) * 9 // 10
    part = whole[cut:] if epoch == HELD else whole[:cut]
    for _ in range(batches):
        starts = rng.integers(0, len(part) - rows - 1, BATCH)
        ids = np.stack([part[at : at + rows + 1] for at in starts])
        yield Batch(np.eye(WIDTH, dtype=np.float32)[ids[:, :-1]], ids[:, 1:])


HELD = 10_000
"""Epoch of the data that are judged."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is learned, and how it is shown.

    Attributes
    ----------
    rows : of the table: what it is called, its links, how it learns
    shown : epochs of the curve
    bits : whether the loss is shown, in bits a letter, instead of the percent that are right
    """

    rows: tuple[tuple[str, Links, Mode], ...]
    draw: Draw
    outputs: int = SYMBOLS
    forward: int = 1
    epochs: int = 6
    updates: int = 50
    rate: float = 3e-3
    shown: tuple[int, ...] = (1, 2, 3, 6)
    bits: bool = False


def through_ticks(window: int) -> tuple[tuple[str, Links, Mode], ...]:
    """Grids with ticks, and one without."""
    ticks = Systolic(window=window)
    return (
        ("tick by tick", "both ways", ticks),
        ("tick by tick", "forward", ticks),
        ("tick by tick", "none", ticks),
        ("row by row", "forward", Backprop()),
    )


def online(**fields: Any) -> TargetPropagation:
    """Targets on their way through a grid that runs."""
    return TargetPropagation(window=8, **fields)


TASKS: dict[str, Task] = {
    "recall": Task(rows=through_ticks(64), draw=partial(recall, 8, 32)),
    "far": Task(
        rows=through_ticks(128),
        draw=partial(recall, 32, 64),
        forward=FAR_LINK,
    ),
    "letters": Task(
        rows=through_ticks(128),
        draw=partial(letters, 64),
        outputs=LETTERS,
        forward=LETTER_LINK,
        epochs=10,
        updates=100,
        shown=(1, 2, 5, 10),
        bits=True,
    ),
    "online": Task(
        rows=(
            ("through ticks", "forward", Systolic(window=64)),
            ("aligned, by gradients", "forward", online(method="gradient")),
            ("aligned, by differences", "forward", online()),
            ("present, by gradients", "forward", online(method="gradient", timing="present")),
            ("present, by differences", "forward", online(timing="present")),
        ),
        draw=partial(recall, 8, 32),
        updates=20,
        rate=2e-4,
    ),
}


def curve(task: Task, links: Links, mode: Mode, seed: int, device: str) -> list[float]:
    """What is right of data held back, epoch by epoch."""
    network = grid_of(links, task.outputs, forward=task.forward)
    if isinstance(mode, Backprop):  # where links with a delay look back
        network = grid_of(links, task.outputs, forward=0)
    found: list[float] = []

    def note(event: object) -> None:
        if isinstance(event, EpochEvent):
            loss = (event.validation_loss or 0.0) / math.log(2)
            found.append(loss if task.bits else 100 * (event.accuracy or 0.0))

    online = isinstance(mode, TargetPropagation)
    config = TrainConfig(
        mode=mode,
        loss=CrossEntropy(),
        optimiser=Adam(lr=task.rate if online else 3e-3),
        schedule=Constant() if online else Cosine(steps=task.epochs * task.updates),
        clip=1.0,
        epochs=task.epochs,
        accuracy=True,
    )
    train(
        network if isinstance(mode, Backprop) else Clocked(network=network),
        initialise(network, seed),
        StreamData(lambda epoch: task.draw(seed, epoch, task.updates)),
        config,
        validation=StreamData(lambda epoch: task.draw(seed, HELD, 8)),
        reporters=[note],
        device=device,
    )
    return found


def learn(given: Any) -> None:
    """Print curves, and write them into the document if asked to."""
    for name in given.only.split(","):
        task, unit = TASKS[name], "" if TASKS[name].bits else " %"
        lines = [
            "| links | runs | weights | " + " | ".join(f"epoch {n}" for n in task.shown) + " | least … greatest |",
            "| --- " * (len(task.shown) + 4) + "|",
        ]
        print(name, *lines, sep="\n")
        for runs, links, mode in task.rows:
            found = np.array([curve(task, links, mode, seed, given.device) for seed in range(given.seeds)])
            size = sum(store.values().size for store in initialise(grid_of(links, task.outputs)).values())
            digits = 2 if task.bits else 1
            means = " | ".join(f"{found[:, n - 1].mean():.{digits}f}{unit}" for n in task.shown)
            ends = f"{found[:, -1].min():.{digits}f} … {found[:, -1].max():.{digits}f}"
            lines.append(f"| {links} | {runs} | {size} | {means} | {ends} |")
            print(lines[-1], flush=True)
        if given.update:
            begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
            text = DOCUMENT.read_text(encoding="utf-8")
            before, rest = text.split(begin)
            written = before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1]
            DOCUMENT.write_text(written, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn."""
    parser = argument_parser(__doc__)
    verbs = parser.add_subparsers(required=True)
    sub = verbs.add_parser("learn")
    sub.add_argument("--only", default=",".join(TASKS))
    sub.add_argument("--seeds", type=int, default=3)
    sub.add_argument("--device", default="cpu")
    sub.add_argument("--update", action="store_true")
    sub.set_defaults(verb=learn)
    given = parser.parse_args(arguments)
    given.verb(given)


if __name__ == "__main__":
    main()
