"""Encoder: pooled hidden states of many texts; texts of different lengths share device calls, without padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError
from volumetric.generate.hidden_states import HIDDEN
from volumetric.layers import Embedding
from volumetric.loaders.encoder_layers import TOKEN_TYPES
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.sentence_modules import PooledHead
from volumetric.loaders.tokenizer import Encoded
from volumetric.network import INPUT, OUTPUT, Network
from volumetric.run.device import Device, Executable, OutputRows, RunOptions, SequenceRows, output_of
from volumetric.run.lower import lower
from volumetric.run.text_pooling import Pooling, PoolsTexts

Rows: TypeAlias = Mapping[str, NDArray[np.int32]]
"""Tokens of a text, and their types if needed, by input name of the network."""

ROWS = 2048
"""Most tokens of a group of texts whose hidden states are in memory at once. The device splits a group into calls."""
POOLED_ROWS = 1 << 16
"""The same where the device pools: its calls follow each other without a wait, and hidden states stay there."""


class Encoder:
    """Runs the part of a model that computes hidden states.

    Parameters
    ----------
    loaded : result of a loader
    executable : the compiled network of `with_hidden`
    """

    def __init__(self, loaded: LoadedModel, executable: Executable) -> None:
        self._output = OUTPUT if loaded.hidden is None else HIDDEN
        tables = [spec.num_embeddings for spec in loaded.network.layers.values() if isinstance(spec, Embedding)]
        if loaded.hidden is None and loaded.network.shapes[max(loaded.network.layers)][-1] in tables:
            raise GenerationError(
                f"{loaded.name} outputs logits over its vocabulary, and its files do not name the layer of its "
                "hidden states",
                hint="open the model in Hugging Face format",
            )
        self.executable = executable
        self._pools: PoolsTexts | None = None
        if isinstance(executable, PoolsTexts) and executable.can_pool:
            self._pools = executable
        self.width: int = loaded.network.shapes[loaded.hidden or max(loaded.network.layers)][-1]
        self._types = token_types(loaded.network)
        self._states: list[Any] = []

    def rows(self, text: Encoded) -> Rows:
        """Return a text's tokens, with their types if the network reads them and they are not all 0."""
        rows = {INPUT: np.array(text.ids, np.int32)}
        if self._types > 1 and any(text.types):
            rows[TOKEN_TYPES] = np.minimum(np.array(text.types, np.int32), self._types - 1)
        return rows

    def pooled(self, texts: Sequence[Rows], modes: Sequence[Pooling], skipped: int = 0) -> F32Array:
        """Return a row for each text, ``[n, d · modes]``; see `pool`. On CPUs rows are batch-invariant."""
        rows = np.empty((len(texts), self.width * len(modes)), np.float32)
        lengths = [len(text[INPUT]) for text in texts]
        if self._pools is not None:
            for group in _groups(lengths, POOLED_ROWS):
                some = [texts[i] for i in group]
                rows[group] = self._pools.pool_texts(some, modes, output=self._output, skipped=skipped)
            return rows
        last_only = all(mode == "lasttoken" for mode in modes)
        for group in _groups(lengths, ROWS):
            some = [texts[i] for i in group]
            for i, hidden in zip(group, self._hidden_states(some, last_only=last_only), strict=True):
                rows[i] = pool(hidden, modes, skipped)
        return rows

    def _hidden_states(self, texts: Sequence[Rows], *, last_only: bool = False) -> list[F32Array]:
        """Return the hidden states of each text: of its last token, or of all."""
        while len(self._states) < len(texts):
            self._states.append(self.executable.new_state())
        states = self._states[: len(texts)]
        which: OutputRows = "last" if last_only else "all"
        pieces = [SequenceRows(state, text, which, (self._output,)) for state, text in zip(states, texts, strict=True)]
        try:
            return [output_of(outputs, self._output) for outputs in self.executable.run(pieces)]
        finally:
            for state in states:
                state.reset()

    def close(self) -> None:
        """Free the resources that the model does not own."""
        self._states.clear()


class CompiledHead:
    """A compiled head: from pooled hidden states to outputs."""

    def __init__(self, head: PooledHead, device: Device, options: RunOptions) -> None:
        self._executable = device.compile(lower(head.network), head.params, options)
        self.width: int = head.network.shapes[max(head.network.layers)][-1]

    def __call__(self, rows: F32Array) -> F32Array:
        """Return the outputs of `rows` ``[n, d]``."""
        state = self._executable.new_state()
        outputs = np.empty((len(rows), self.width), np.float32)
        for start in range(0, len(rows), 256):
            state.reset()
            outputs[start : start + 256] = self._executable.forward(state, rows[start : start + 256], last_only=False)
        return outputs

    def close(self) -> None:
        """Free the memory."""
        self._executable.close()


def token_types(network: Network) -> int:
    """Number of token types of a network; 0 if it does not read them."""
    port = network.inputs.get(TOKEN_TYPES)
    table = None if port is None else network.layers[port.coord]
    return table.num_embeddings if isinstance(table, Embedding) else 0


def _groups(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Group indices of texts, longest first: memory grows only once, and texts of a call have similar lengths."""
    group: list[int] = []
    rows = 0
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if group and rows + lengths[i] > most:
            yield group
            group, rows = [], 0
        group.append(i)
        rows += lengths[i]
    if group:
        yield group


def pool(rows: F32Array, modes: Sequence[Pooling], skipped: int = 0) -> F32Array:
    """Return the hidden states ``[T, d]`` of a text as one row ``[d · modes]``, as sentence-transformers does.

    Parameters
    ----------
    modes : ``"cls"`` the first row; ``"lasttoken"`` the last one; ``"max"`` and ``"mean"`` of each column;
        ``"mean_sqrt_len_tokens"`` the sum over √T; ``"weightedmean"`` rows weighted by their position, 1 … T. Several
        are concatenated.
    skipped : number of rows of a prompt at the start that are ignored
    """
    counted = rows[min(skipped, len(rows) - 1) :]
    parts = [_pool(counted, mode, len(rows) - len(counted)) for mode in modes]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _pool(rows: F32Array, mode: Pooling, before: int) -> F32Array:
    if mode == "cls":
        return rows[0]
    if mode == "lasttoken":
        return rows[-1]
    if mode == "max":
        return rows.max(0)
    if mode == "weightedmean":
        weights = np.arange(before + 1, before + 1 + len(rows), dtype=np.float32)
        return weights @ rows / weights.sum()
    # A product with ones adds several rows at a time; `sum(0)` adds them one by one, and takes three times as long.
    total = np.ones(len(rows), np.float32) @ rows
    return total / np.float32(len(rows) if mode == "mean" else np.sqrt(len(rows)))


def scaled_to_one(rows: F32Array) -> F32Array:
    """Scale rows to length 1; rows of length 0 stay, as in torch's `normalize`."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.float32(1e-12))
