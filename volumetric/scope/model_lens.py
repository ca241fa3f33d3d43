"""The view of the likeliest tokens at every layer: the logit lens (nostalgebraist 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import UnsupportedError
from volumetric.graph.numeric.softmax import log_softmax
from volumetric.scope.document import ScopeView
from volumetric.scope.model_prompt import PromptTrace, head_plan, through_head
from volumetric.scope.model_tokens import token_texts

TOP: Final = 10
"""Tokens that a cell lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LensLayer:
    """What the head makes of the residual stream behind one block.

    Attributes
    ----------
    label : of the block
    top : ids of the likeliest tokens, ``[T, 10]``, in descending order
    probability : theirs, ``[T, 10]``
    entropy : of all probabilities of a position, in bits, ``[T]``
    logits : ``[T, vocabulary]``, of the last block only
    """

    label: str
    top: np.ndarray
    probability: F32Array
    entropy: F32Array
    logits: F32Array | None = None


def lens_layers(trace: PromptTrace) -> list[LensLayer]:
    """Apply everything that follows the last block (norm, projection, factor, soft cap) to the stream of each block.

    The last layer has the model's own logits.

    Raises
    ------
    UnsupportedError : what follows the blocks is not a head over the vocabulary, or blocks change their width
    """
    head = head_plan(trace.plan)
    if head is None or trace.output.ndim != 2:
        raise UnsupportedError(
            f"{trace.loaded.name} does not end in a norm and a projection to its vocabulary",
            hint="the lens is for decoders, and for encoders with a head of masked tokens",
        )
    plan, last = head
    width = trace.streams[last.label].shape
    weights: dict[str, F32Array] = {}
    layers: list[LensLayer] = []
    for label, stream in trace.streams.items():
        if stream.shape != width:  # embeddings that a projection widens
            continue
        logits = through_head(plan, stream, weights, trace.loaded)
        logs = log_softmax(logits)
        count = min(TOP, logits.shape[1])
        top = np.argpartition(logits, -count, axis=1)[:, -count:]
        order = np.argsort(-np.take_along_axis(logs, top, 1), axis=1, kind="stable")
        top = np.take_along_axis(top, order, 1)
        p = np.exp(logs)
        # of a token that is ruled out p is 0 and its logarithm -inf; their product counts as 0
        bits = -np.einsum("tv,tv->t", p, np.maximum(logs, np.finfo(np.float32).min)) / np.log(2)
        layers.append(
            LensLayer(
                label=label,
                top=top.astype(np.int32),
                probability=np.take_along_axis(p, top, 1),
                entropy=bits.astype(np.float32),
                logits=logits if label == last.label else None,
            )
        )
    return layers


def lens_view(trace: PromptTrace, *, name: str = "lens", label: str = "Tokens by layer") -> ScopeView:
    """Return the view of the likeliest tokens at every layer and position.

    Raises
    ------
    UnsupportedError : see `lens_layers`
    """
    layers = lens_layers(trace)
    tokenizer = trace.loaded.tokenizer
    ids = sorted({int(i) for layer in layers for i in layer.top.ravel()})
    places = {id: i for i, id in enumerate(ids)}
    stacked: dict[str, Any] = {
        "top": np.stack([np.vectorize(places.__getitem__, otypes=[np.int32])(layer.top) for layer in layers]),
        "probability": np.stack([layer.probability for layer in layers]).astype(np.float32),
        "entropy": np.stack([layer.entropy for layer in layers]),
    }
    data = {
        "tokens": token_texts(tokenizer, trace.ids),
        "ids": list(trace.ids),
        "leftOut": trace.left_out,
        "layers": [layer.label for layer in layers],
        "vocabulary": token_texts(tokenizer, ids),
        "vocabularyIds": ids,
        "size": int(trace.output.shape[1]),
        "predicts": "same" if any(layer.spec.two_way for layer in trace.attention) else "next",
        **stacked,
    }
    return ScopeView(kind="lens", name=name, label=label, data=data)
