"""The view of what each head of a model reads in a prompt."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.scope.document import ScopeView
from volumetric.scope.model_prompt import PromptTrace
from volumetric.scope.model_tokens import token_texts

MAX_WEIGHTS: Final = 6_000_000
"""Most weights of attention in a page, of all layers and heads: 12 MB before compression."""


def attention_view(trace: PromptTrace, *, name: str = "attention", label: str = "Attention") -> ScopeView:
    """Return the view of attention in a prompt: for each layer and head a matrix of tokens × tokens.

    Weights are rounded to float16. If all layers and heads have more than 6 million weights, the prompt is cut after
    as many tokens as fit.

    Raises
    ------
    UnsupportedError : the model has no layer of attention
    """
    if not trace.attention:
        raise UnsupportedError(
            f"{trace.loaded.name} has no multi-head attention, so there are no weights to show",
            hint="the views of its layers and of the likeliest tokens need none",
        )
    heads = sum(layer.spec.num_heads for layer in trace.attention)
    rows = min(len(trace.ids), max(1, int((MAX_WEIGHTS / heads) ** 0.5)))
    layers = [
        {
            "where": layer.where,
            "block": layer.block,
            "heads": layer.spec.num_heads,
            "kvHeads": layer.spec.kv_heads,
            "window": layer.spec.window,
            "chunk": layer.spec.chunk,
            "causal": layer.spec.causal,
            "sinks": layer.spec.sinks,
            # A row of a causal layer does not depend on later rows, so a cut changes nothing.
            "weights": layer.weights[:, :rows, :rows].astype(np.float16),
        }
        for layer in trace.attention
    ]
    data = {
        "tokens": token_texts(trace.loaded.tokenizer, trace.ids[:rows]),
        "ids": list(trace.ids[:rows]),
        "leftOut": trace.left_out + len(trace.ids) - rows,
        "layers": layers,
        "unread": list(trace.unread),
    }
    return ScopeView(kind="attention", name=name, label=label, data=data)
