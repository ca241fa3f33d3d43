"""Networks that memory tasks are given to: cells of a pattern between an embedding and a head."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from volumetric.builders import chain
from volumetric.errors import SpecError
from volumetric.layers import (
    LSTM,
    MLSTM,
    SLSTM,
    AGaLiTe,
    Axon,
    CausalConv1d,
    Dense,
    Embedding,
    LayerSpec,
    XLAttention,
)
from volumetric.network import Network
from volumetric.train.problems import Problem

CELLS: Final = MappingProxyType[str, Callable[[int], LayerSpec]](
    {
        "A": lambda width: Axon(in_features=width, out_features=width),
        "X": lambda width: XLAttention(embed_dim=width),
        "M": lambda width: MLSTM(embed_dim=width),
        "S": lambda width: SLSTM(embed_dim=width),
        "L": lambda width: LSTM(input_size=width, hidden_size=width),
        "C": lambda width: CausalConv1d(channels=width),
        "Ag": lambda width: AGaLiTe(embed_dim=width),
    }
)
"""Token of a pattern → a cell of some width."""


def network_for(problem: Problem, pattern: str, width: int) -> Network:
    """Return an embedding (or a projection, of values), the cells of a pattern and a head.

    Raises
    ------
    SpecError : the pattern has no tokens, or others than these
    """
    tokens = re.findall("Ag|.", pattern)
    unknown = next((token for token in tokens if token not in CELLS), None)
    if unknown is not None or not tokens:
        raise SpecError(f"pattern {pattern!r}: no cell is called {unknown or ''!r}", hint=f"tokens: {' '.join(CELLS)}")
    first: LayerSpec
    if problem.vocabulary:
        first = Embedding(num_embeddings=problem.vocabulary, embedding_dim=width)
        shape, dtype = (), "int32"
    else:
        first = Dense(in_features=problem.inputs.shape[-1], out_features=width)
        shape, dtype = problem.inputs.shape[2:], "float32"
    cells = [CELLS[token](width) for token in tokens]
    return chain([first, *cells, Dense(in_features=width, out_features=problem.outputs)], shape, dtype)
