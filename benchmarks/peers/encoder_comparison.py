"""An encoder of MiniLM's shape, in this engine and in ONNX Runtime on the same GPU."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.peers.comparison import Comparison, Measure, compare
from benchmarks.peers.fused_encoder import write_fused_encoder
from benchmarks.peers.random_encoder import MINILM, named_weights, random_encoder
from benchmarks.workers import Worker
from volumetric.base._typing import F32Array
from volumetric.base.errors import DeviceError, VolumetricError
from volumetric.generate.encoder import Encoder
from volumetric.loaders import LoadedModel
from volumetric.loaders.onnx_export.save_onnx import save_onnx
from volumetric.network import INPUT
from volumetric.run.device import Device, RunOptions
from volumetric.run.lower import lower

MISSING = "pip install onnxruntime onnxruntime-ep-webgpu, or leave --peer-python out"
TOKENS = 65_536
"""Tokens of a measurement, about."""
EXPORTED = "as exported"
AGREE = {"float32": 2e-2, "float16": 5e-2, EXPORTED: 2e-2}
"""How far pooled rows may be apart, relative to the largest number: engines round products in their own ways."""


class OnnxRuntime(Worker):
    """A process with ONNX Runtime and the encoder's files, one for each form."""

    def __init__(self, python: Path, provider: str, folder: Path, model: LoadedModel) -> None:
        super().__init__(python, "peers/onnxruntime_worker.py", provider, name="ONNX Runtime", missing=MISSING)
        self._folder = folder
        self._paths = {form: folder / f"{form.replace(' ', '-')}.onnx" for form in AGREE}
        try:
            self.about: str = self.answer()["about"]
            self._write(model)
            for path in self._paths.values():
                self.ask({"open": str(path)})
        except VolumetricError:
            self.close()
            raise

    def _write(self, model: LoadedModel) -> None:
        weights = named_weights(model)
        for form in ("float32", "float16"):
            write_fused_encoder(self._paths[form], weights, model.config, half=form == "float16")
        save_onnx(self._paths[EXPORTED], model.network, model.params)

    def run(self, form: str, ids: np.ndarray[Any, Any], runs: int) -> tuple[float, F32Array]:
        """Return the seconds of `runs` runs with the ids ``[texts, tokens]``, and the pooled rows."""
        inputs, outputs = self._folder / "inputs.npz", self._folder / "outputs.npy"
        if form == EXPORTED:
            one = ids[0].astype(np.int32)
            np.savez(inputs, allow_pickle=False, **{INPUT: one, "token_type_ids": np.zeros_like(one)})
        else:
            np.savez(inputs, allow_pickle=False, ids=ids.astype(np.int64))
        answer = self.ask({"run": str(self._paths[form]), "inputs": str(inputs), "outputs": str(outputs), "runs": runs})
        rows = np.load(outputs, allow_pickle=False)
        return float(answer["seconds"]), rows.mean(0, keepdims=True) if form == EXPORTED else rows

    def rate(self, form: str, ids: np.ndarray[Any, Any], runs: int) -> float:
        """Texts per second."""
        return runs * len(ids) / self.run(form, ids, runs)[0]


def measure_encoder(
    device: Device, python: Path | None, *, batches: Sequence[int], lengths: Sequence[int], rounds: int,
    compute: Literal["auto", "float32", "int8", "bfloat16"] = "auto", provider: str = "WebGpuExecutionProvider",
    config: dict[str, Any] | None = None, dtypes: Sequence[str] = ("float32", "float16"), tokens: int = TOKENS,
) -> Iterator[Comparison]:  # fmt: skip
    """Yield a row for each dtype of our weights, length and number of texts of a call.

    Raises
    ------
    DeviceError : the peer does not run, or its numbers are not ours
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = dict(MINILM) if config is None else config
        peer = None
        if python is not None:
            peer = stack.enter_context(OnnxRuntime(python, provider, folder, random_encoder(config)))
            print(peer.about, flush=True)
        draw = np.random.default_rng(0)
        for dtype in dtypes:
            model = random_encoder(config, dtype)
            options = RunOptions(context=config["max_position_embeddings"], compute=compute)
            executable = device.compile(lower(model.network), model.params, options)
            stack.callback(executable.close)
            encoder = Encoder(model, executable)
            for length in lengths:
                for texts in batches:
                    ids = draw.integers(0, config["vocab_size"], (texts, length)).astype(np.int32)
                    runs = max(1, min(200, tokens // ids.size))
                    forms: dict[str, Measure] = {}
                    if peer is not None:
                        chosen = [form for form in AGREE if form != EXPORTED or texts == 1]
                        _check(encoder, peer, ids, chosen)
                        forms = {form: partial(peer.rate, form, ids, runs) for form in chosen}
                    what = f"{dtype} weights, {texts} texts of {length}"
                    yield compare(what, "texts/s", partial(_rate, encoder, ids, runs), forms, rounds)


def _rate(encoder: Encoder, ids: np.ndarray[Any, Any], runs: int) -> float:
    """Texts per second of ours."""
    texts = [{INPUT: row} for row in ids]
    start = time.perf_counter()
    for _ in range(runs):
        encoder.pooled(texts, ["mean"])
    return runs * len(ids) / (time.perf_counter() - start)


def _check(encoder: Encoder, peer: OnnxRuntime, ids: np.ndarray[Any, Any], forms: Sequence[str]) -> None:
    """Raise `DeviceError` unless the peer computes the same."""
    ours = encoder.pooled([{INPUT: row} for row in ids], ["mean"])
    for form in forms:
        apart = float(np.abs(peer.run(form, ids, 1)[1] - ours).max() / np.abs(ours).max())
        if not apart < AGREE[form]:
            raise DeviceError(f"{peer.about}: {form} differs from ours by {apart:.2g} of the largest number")
