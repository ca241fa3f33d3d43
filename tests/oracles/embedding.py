"""In NumPy: lookups: token embedding and learned absolute positions."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.memory import Memory, refuse_resets
from volumetric.base._typing import Array
from volumetric.base.errors import GenerationError, ShapeError
from volumetric.layers.embedding import Embedding, PositionEmbedding


@oracle_of(Embedding)
class EmbeddingOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        ids = check_ids(xs[0], self.num_embeddings)
        weight = p["weight"]
        return weight[ids] * weight.dtype.type(self.scale), {"ids": ids}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        gradient = np.zeros_like(p["weight"])
        np.add.at(gradient, saved["ids"], gy * gy.dtype.type(self.scale))
        return Grads((None,), {"weight": gradient})


def check_ids(ids: Array, vocabulary: int) -> Array:
    """Return `ids` as integers; raise `GenerationError` for one outside of ``0 … vocabulary - 1``."""
    if not np.issubdtype(ids.dtype, np.integer):
        raise ShapeError(f"token ids must be integers, got {ids.dtype}")
    wrong = np.flatnonzero((ids < 0) | (ids >= vocabulary))
    if wrong.size:
        at = int(wrong[0])
        raise GenerationError(
            f"token id {int(ids.ravel()[at])} at position {at} is outside of the vocabulary of {vocabulary}",
            hint="use the tokenizer that belongs to this model",
        )
    return ids


@oracle_of(PositionEmbedding)
class PositionEmbeddingOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        refuse_resets(self.kind, memory)
        start = self.offset + (memory.position if memory else 0)
        end = start + x.shape[-2]
        if end > self.num_embeddings:
            raise GenerationError(
                f"position {end - 1} is beyond the {self.num_embeddings} learned positions", hint="shorten the context"
            )
        return x + p["weight"][start:end], {"start": start}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        gradient = np.zeros_like(p["weight"])
        start = saved["start"]
        gradient[start : start + gy.shape[-2]] = gy.reshape(-1, *gy.shape[-2:]).sum(0)
        return Grads((gy,), {"weight": gradient})
