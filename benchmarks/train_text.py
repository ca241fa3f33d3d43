"""Train a small transformer on the letters of a text, from nothing; save it, load it, let it write.

    python -m benchmarks train_text --device cpu [--epochs 8] [--out DIRECTORY]

The text is benchmarks/data/esther.txt, of which the last tenth is held back. The loss is in nats for each letter; a
model that knows only how often letters are has about 2.9, one that knows which letter follows which about 2.2.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import volumetric
from benchmarks.arguments import argument_parser
from volumetric.builders import transformer
from volumetric.loaders.byte_tokenizer import byte_tokenizer_json
from volumetric.loaders.native_checkpoint import NativeFacts, save_native
from volumetric.network import initialise
from volumetric.train import (
    AdamW,
    ArrayData,
    Cosine,
    CrossEntropy,
    EpochEvent,
    Event,
    TrainConfig,
    WarmUp,
    token_windows,
    train,
)
from volumetric.train.learner_opening import open_learner

TEXT = Path(__file__).parent / "data" / "esther.txt"
LENGTH = 96


class Printer:
    """Prints every epoch."""

    def start(self, step: int, epoch: int) -> None:
        self.began = time.perf_counter()

    def report(self, event: Event) -> None:
        if isinstance(event, EpochEvent):
            seconds = time.perf_counter() - self.began
            losses = f"loss {event.loss:.3f} held back {event.validation_loss:.3f}"
            print(f"epoch {event.epoch + 1:3} {losses} {seconds:6.1f} s", flush=True)

    def close(self) -> None:
        pass


def main() -> None:
    """Print the losses, the file's size and what the model writes."""
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    letters = np.frombuffer(TEXT.read_bytes(), np.uint8)
    cut = len(letters) * 9 // 10
    known, held = (
        token_windows(part, LENGTH, stride) for part, stride in ((letters[:cut], 24), (letters[cut:], LENGTH))
    )
    data = ArrayData(inputs=known[0], targets=known[1], batch_size=16, seed=1)
    steps = given.epochs * data.batches_per_epoch
    config = TrainConfig(
        loss=CrossEntropy(),
        optimiser=AdamW(lr=2e-3, weight_decay=0.1),
        schedule=WarmUp(steps=50, then=Cosine(steps=max(1, steps - 50), floor=0.1)),
        clip=1.0,
        epochs=given.epochs,
    )
    network = transformer(256, width=given.width, blocks=given.blocks, heads=4)
    params = initialise(network, 1)
    print(f"{sum(s.values().size for s in params.values()):,} parameters, {steps} updates of 16 × {LENGTH} letters")
    result = train(
        network, params, data, config, validation=held, learner=open_learner(given.device), reporters=[Printer()]
    )
    with tempfile.TemporaryDirectory() as temporary:
        home = given.out or Path(temporary) / "model"
        files = {"tokenizer.json": byte_tokenizer_json()}
        save_native(home, network, result.best, facts=NativeFacts(context_length=LENGTH), files=files)
        print(f"{(home / 'weights.safetensors').stat().st_size:,} bytes saved")
        model = volumetric.load(str(home), device=given.device)
        print(model.generate("And the king said unto ", max_tokens=60, temperature=0.5, seed=1).text)


if __name__ == "__main__":
    main()
