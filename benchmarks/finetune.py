"""Fine-tune a language model on a text, all weights or low-rank overlays, beside transformers with the same data.

    python -m benchmarks finetune MODEL [--overlay] [--device cpu] [--updates 30] [--transformers OTHER/bin/python]

MODEL is a Hugging Face directory in float32. The windows of benchmarks/data/esther.txt come in one order; AdamW without
decay. With --transformers, whose Python needs torch and transformers, the same run follows there, overlays from the
same start, and the losses stand side by side.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.workers import run_once
from volumetric.loaders import open_model
from volumetric.train import (
    AdamW,
    ArrayData,
    CrossEntropy,
    Event,
    LowRank,
    StepEvent,
    TrainConfig,
    save_overlays,
    token_windows,
    train,
)
from volumetric.train.learner_opening import open_learner

TEXT = Path(__file__).parent / "data" / "esther.txt"
OVERLAY = LowRank(rank=8, alpha=16.0, targets=("*/q.weight", "*/v.weight"))


class Losses:
    """Keeps and prints the loss of every update."""

    def __init__(self) -> None:
        self.all: list[float] = []
        self.seconds: list[float] = []

    def start(self, step: int, epoch: int) -> None:
        pass

    def report(self, event: Event) -> None:
        if isinstance(event, StepEvent):
            self.all.append(event.loss)
            self.seconds.append(event.seconds)
            print(f"update {event.step:3} loss {event.loss:.4f} {event.seconds:6.2f} s", flush=True)

    def close(self) -> None:
        pass


def main() -> None:
    """Print losses, memory and time."""
    parser = argument_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--overlay", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--transformers", metavar="PYTHON")
    given = parser.parse_args()
    rate = given.rate or (5e-4 if given.overlay else 2e-5)
    model = open_model(given.model)
    if model.tokenizer is None:
        raise SystemExit(f"{given.model} has no tokenizer")
    ids = np.array(model.tokenizer.encode(TEXT.read_text(encoding="utf-8")), np.int32)
    inputs, targets = token_windows(ids, given.length)
    data = ArrayData(inputs=inputs, targets=targets, batch_size=given.batch, shuffle=False)
    config = TrainConfig(
        loss=CrossEntropy(),
        optimiser=AdamW(lr=rate, weight_decay=0.0),
        overlay=OVERLAY if given.overlay else None,
        epochs=-(-given.updates // data.batches_per_epoch),
        max_steps=given.updates,
    )
    losses = Losses()
    began = time.perf_counter()
    result = train(model.network, model.params, data, config, learner=open_learner(given.device), reporters=[losses])
    trained = sum(w.size for w in result.overlays.values()) or sum(s.values().size for s in result.params.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{trained:,} trained numbers, peak memory {peak:.2f} GiB, {time.perf_counter() - began:.0f} s in all")
    if given.transformers is None:
        return
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        np.savez(home / "windows.npz", inputs=inputs, targets=targets)
        if given.overlay:
            save_overlays(home / "overlays.npz", OVERLAY, OVERLAY.begin(model.params))
        question = {
            "model": given.model,
            "rate": rate,
            "updates": given.updates,
            "batch": given.batch,
            "home": temporary,
        }
        theirs = json.loads(run_once(given.transformers, "finetune_worker.py", json.dumps(question)))
    print("update  volumetric  transformers  difference")
    for i, (mine, other) in enumerate(zip(losses.all, theirs["losses"], strict=True), start=1):
        print(f"{i:6}  {mine:10.4f}  {other:12.4f}  {mine - other:+.1e}")
    medians = float(np.median(losses.seconds)), float(np.median(theirs["seconds"]))
    print(f"median seconds of an update: {medians[0]:.2f} here, {medians[1]:.2f} there")
    print(f"peak memory there {theirs['peak']:.2f} GiB")


if __name__ == "__main__":
    main()
