"""Train a stack, an LSTM and a transformer of about five million parameters on the bytes of a text, side by side.

    python -m benchmarks stack_text --device cpu --updates 60 [--text FILE] [--models stack,lstm] [--seeds 0,1,2]

Each sees the same windows in the same order: streams side by side, from which stack and LSTM carry their states on. The
last tenth of the text is held back. Told are bits a byte of the updates and of what is held back, and seconds of
updates; the model with the best figure on what is held back counts. Without --text it is benchmarks/data/esther.txt,
which is small: a longer text tells more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser
from volumetric.base.reporting import Reporter
from volumetric.builders import auto_stack, stack, transformer
from volumetric.network import Network, initialise
from volumetric.train import (
    AdamW,
    Backprop,
    Cosine,
    CrossEntropy,
    EpochEvent,
    Event,
    StepEvent,
    StreamWindows,
    TrainConfig,
    WarmUp,
    train,
)

TEXT = Path(__file__).parent / "data" / "esther.txt"
BITS = 1 / np.log(2)
MODELS: dict[str, tuple[Callable[[], Network], bool]] = {
    "stack": (lambda: auto_stack(176, 2, "AXMS", embed=256, classes=256), True),
    "lstm": (lambda: stack(528, ["L", "L"], embed=256, classes=256), True),
    "transformer": (lambda: transformer(256, width=256, blocks=6, heads=8), False),
}
"""Name → what builds it, and whether it goes on from window to window."""


class Windows:
    """Windows of `StreamWindows`, without resets for those that carry nothing, and the epochs cut to a length."""

    def __init__(self, data: StreamWindows, *, carry: bool) -> None:
        self._data, self._carry = data, carry

    def batches(self, epoch: int, start: int = 0):
        """Yield the windows."""
        for batch in self._data.batches(epoch, start):
            yield batch if self._carry else type(batch)(batch.features, batch.targets)

    def describe(self):
        """Say what they are."""
        return {**self._data.describe(), "carry": self._carry}


class Told(Reporter[Event]):
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.held: list[float] = []

    def start(self, step: int, epoch: int) -> None:
        """Nothing is to be done."""

    def report(self, event: Event) -> None:
        """Keep losses and times."""
        if isinstance(event, StepEvent):
            self.losses.append(event.loss * BITS)
            self.seconds.append(event.seconds)
        elif isinstance(event, EpochEvent) and event.validation_loss is not None:
            self.held.append(event.validation_loss * BITS)

    def close(self) -> None:
        """Nothing is to be done."""


def run(name: str, seed: int, given: argparse.Namespace, known: np.ndarray, held: np.ndarray) -> None:
    """Train a model and print its row."""
    make, carry = MODELS[name]
    network = make()
    data, other = (StreamWindows(ids, given.length, given.batch) for ids in (known, held))
    epochs = max(1, round(given.updates / data.windows))
    updates = epochs * data.windows
    config = TrainConfig(
        loss=CrossEntropy(),
        optimiser=AdamW(lr=given.rate, weight_decay=0.1),
        schedule=WarmUp(steps=min(20, updates // 4), then=Cosine(steps=max(1, updates), floor=0.1)),
        mode=Backprop(carry=carry),
        clip=1.0,
        epochs=epochs,
    )
    params, told, began = initialise(network, seed), Told(), time.perf_counter()
    size = sum(store.values().size for store in params.values())
    train(
        network,
        params,
        Windows(data, carry=carry),
        config,
        validation=Windows(other, carry=carry),
        reporters=[told],
        device=given.device,
    )
    ends = np.mean(told.losses[-data.windows :])
    speed = given.length * given.batch / np.median(told.seconds)
    print(
        f"| {name} | {size / 1e6:.2f} M | {seed} | {updates} | {ends:.2f} | {min(told.held):.2f} | {speed:,.0f} | "
        f"{time.perf_counter() - began:.0f} |",
        flush=True,
    )


def main() -> None:
    """Print a row for each model and seed."""
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3)
    given = parser.parse_args()
    letters = np.frombuffer(given.text.read_bytes(), np.uint8).astype(np.int32)
    cut = len(letters) * 9 // 10
    print("| model | parameters | seed | updates | bits a byte | held back | bytes/s | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in given.models.split(","):
        for seed in given.seeds.split(","):
            run(name, int(seed), given, letters[:cut], letters[cut:])


if __name__ == "__main__":
    main()
