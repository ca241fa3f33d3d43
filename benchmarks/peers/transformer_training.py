"""A transformer trained from the same weights on the same tokens, in this engine and in PyTorch on the same GPU."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.known_shapes import MODELS, Model, network
from benchmarks.peers.comparison import Comparison, Measure, compare
from benchmarks.workers import Worker
from volumetric.base._typing import IntArray
from volumetric.base.errors import DeviceError, SpecError
from volumetric.network import Network
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run.device import Device
from volumetric.train import AdamW, Batch, CrossEntropy, Learner, LearnerOptions
from volumetric.train.learner import Compute
from volumetric.train.learner_opening import open_learner

RATE = 1e-3
SUCCESSORS = 4
"""Tokens that may follow each: the best loss is the logarithm of this."""
FORMS = {"cuda": ("float32", "autocast", "compiled"), "cpu": ("float32", "autocast")}
"""Device of PyTorch → how PyTorch computes there: in float32 without TF32, products in float16 with scaled losses, and
these compiled by inductor."""
DEVIATION = 0.02


class TorchTransformer(Worker):
    """A PyTorch process that trains the same transformer."""

    def __init__(self, python: Path, device: str, model: Model, arrays: Path, updates: int) -> None:
        missing = "pip install torch, or leave --peer-python out"
        super().__init__(python, "peers/torch_transformer_worker.py", device, name="PyTorch", missing=missing)
        self.loss: dict[str, float] = {}
        sizes = {"heads": model.heads, "kv_heads": model.kv_heads, "blocks": model.blocks}
        try:
            self.about: str = self.answer()["about"]
            self.ask({"arrays": str(arrays), "rate": RATE, "updates": updates, **sizes})
        except DeviceError:
            self.close()
            raise

    def seconds(self, form: str) -> float:
        """Seconds of the next updates of a form."""
        answer = self.ask({"train": form})
        self.loss[form] = float(answer["loss"])
        return float(answer["seconds"])


def start_weights(of: Network) -> Params:
    """Return normal weights and gains of one."""
    draw, stores = np.random.default_rng(0), {}
    for key, spec in of.param_specs().items():
        drawn = np.ones(spec.shape) if spec.init == "ones" else draw.normal(0.0, DEVIATION, spec.shape)
        stores[key] = WeightStore.from_array(drawn.astype(np.float32))
    return Params(stores)


def chained_tokens(vocabulary: int, sequences: int, length: int) -> IntArray:
    """Return token ids ``[sequences, length]``, each one of a few that may follow the one before."""
    draw = np.random.default_rng(1)
    follow = draw.integers(0, vocabulary, (vocabulary, SUCCESSORS))
    ids = np.empty((sequences, length), np.int32)
    ids[:, 0] = draw.integers(0, vocabulary, sequences)
    for i in range(1, length):
        ids[:, i] = follow[ids[:, i - 1], draw.integers(0, SUCCESSORS, sequences)]
    return ids


def measure_transformer(
    name: str, device: Device, python: Path | None, *, updates: int, rounds: int, sequences: int = 16,
    length: int = 256, computes: Sequence[str] = ("float32",),
) -> Iterator[Comparison]:  # fmt: skip
    """Yield a row for each precision of ours beside PyTorch's forms; tokens a second of updates by AdamW.

    Each update waits for its loss, in both. Every engine makes the same updates from the same weights, so their losses
    at the end, which are printed, can be compared.

    Parameters
    ----------
    computes : of `LearnerOptions`; ``"float32"`` is its default

    Raises
    ------
    SpecError : an unknown shape or precision
    DeviceError : the peer does not run
    """
    if name not in MODELS:
        raise SpecError(f"there is no shape {name!r}", hint="known: " + ", ".join(MODELS))
    model = MODELS[name]
    net = network(model)
    params, tokens = start_weights(net), chained_tokens(model.vocabulary, updates * sequences, length + 1)
    batches = [Batch(part[:, :-1], part[:, 1:]) for part in np.split(tokens, updates)]
    work, count = updates * sequences * length, sum(store.values().size for store in params.values())
    for compute in computes:
        with ExitStack() as stack:
            peer, kind = None, "cuda" if device.info.kind == "gpu" else "cpu"
            if python is not None:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                path = Path(folder) / "transformer.npz"
                np.savez(
                    path, allow_pickle=False, tokens=tokens, **{key: store.values() for key, store in params.items()}
                )
                peer = stack.enter_context(TorchTransformer(python, kind, model, path, updates))
                print(f"{name}: {peer.about}", flush=True)
            options = LearnerOptions(
                loss=CrossEntropy(), optimiser=AdamW(lr=RATE, weight_decay=0.0), compute=cast("Compute", compute)
            )
            learner = open_learner(device)(net, params, options)
            losses: list[float] = []
            forms = {} if peer is None else {form: _rate(peer, form, work) for form in FORMS[kind]}
            what = f"train {name} ({count / 1e6:.1f} M), {sequences} × {length} tokens, {compute}"
            yield compare(what, "tok/s", lambda: work / _train(learner, batches, losses), forms, rounds)  # noqa: B023
            theirs = "" if peer is None else ", ".join(f"{form} {loss:.4f}" for form, loss in peer.loss.items())
            print(f"last loss: ours {losses[-1]:.4f}" + (f"; PyTorch {theirs}" if theirs else ""), flush=True)


def _rate(peer: TorchTransformer, form: str, work: int) -> Measure:
    return lambda: work / peer.seconds(form)


def _train(learner: Learner, batches: Sequence[Batch], losses: list[float]) -> float:
    """Make an update for each batch; return the seconds, and append the last loss."""
    start, loss = time.perf_counter(), 0.0
    for batch in batches:
        tally = learner.step([batch], rate=RATE).tally
        loss = tally.total / tally.count
    losses.append(loss)
    return time.perf_counter() - start
