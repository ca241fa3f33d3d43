"""Lookups: token embedding and learned absolute positions."""

from __future__ import annotations

from typing import ClassVar

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)


@layer("embedding")
class Embedding(LayerSpec):
    """Looks up a row of a table for each id: int ids ``[T]`` become ``[T, embedding_dim]``.

    ::

        y[t] = scale · E[id[t]]

    An id outside 0 … num_embeddings − 1 is an error. The gradient adds every row of gy to the row of its id; ids have
    no gradient.

    Attributes
    ----------
    num_embeddings : rows of the table
    embedding_dim : features of a row
    scale : factor on the output
    """

    num_embeddings: int = positional()
    embedding_dim: int = positional()
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_embeddings", "embedding_dim")

    def params(self) -> tuple[ParamSpec, ...]:
        return (ParamSpec(name="weight", shape=(self.num_embeddings, self.embedding_dim), init="normal"),)

    def output_shape(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) != 1:
            raise ShapeError(f"embedding expects token ids [T], got {len(inputs[0])} axes")
        return (*inputs[0], self.embedding_dim)

    def emit(self, scope: Scope, ids: int) -> int:
        work, table = scope.work, scope.params(self)["weight"]
        return work.affine(work.gather_rows(table, ids), self.scale)


@layer("position_embedding")
class PositionEmbedding(LayerSpec):
    """Adds a learned vector for the absolute position, which continues from call to call.

    ::

        y[t] = x[t] + P[position(t) + offset]

    GPT-2 and BERT use this layer; OPT has offset 2.

    Attributes
    ----------
    num_embeddings : rows of the table
    embedding_dim : features of a row
    offset : added to the position
    """

    contextual: ClassVar[bool] = True

    num_embeddings: int = positional()
    embedding_dim: int = positional()
    offset: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_embeddings", "embedding_dim")
        if not 0 <= self.offset < self.num_embeddings:
            raise SpecError(f"position_embedding: offset must be in 0 … {self.num_embeddings - 1}, got {self.offset}")

    def params(self) -> tuple[ParamSpec, ...]:
        return (ParamSpec(name="weight", shape=(self.num_embeddings, self.embedding_dim), init="normal"),)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embedding_dim)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        work, table = scope.work, scope.params(self)["weight"]
        if scope.keeps_state(x):
            known = work.part(table, 0, self.offset, self.num_embeddings)
            return work.binary("add", x, work.gather_rows(known, work.positions()))
        rows = scope.as_sequences(x)
        end = self.offset + work.shape(rows)[1]
        if end > self.num_embeddings:
            known = f"the {self.num_embeddings} learned positions at {scope.path}"
            raise ShapeError(f"position {end - 1} is beyond {known}")
        return work.reshape(work.binary("add", rows, work.part(table, 0, self.offset, end)), work.shape(x))
