"""In NumPy: what an attention rule is: how the positions that an edge writes read those of its source."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Oracle, oracle_of
from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.program.layer.attention.rule_base import Attention, Pairs


@oracle_of(Attention)
class AttentionOracle(Oracle):
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  (a rule is no layer)
        self, p: Arrays, queries: Array, source: Array, pairs: Pairs, values: Array | None = None
    ) -> Array:
        """Compute what each position reads, ``[B, N, d]``; zeros where nothing is written.

        Parameters
        ----------
        p : parameters by name
        queries : ``[B, N, d]``, positions that are written, as they were
        source : ``[B, M, d]``, positions that are read
        pairs : who sees whom
        values : read in place of `source` once it is known where to look, as by slots

        Raises
        ------
        ShapeError
            Arrays are of other sizes than `pairs`.
        """
        values = source if values is None else values
        width = queries.shape[-1]
        given = {"queries": (queries, pairs.queries), "source": (source, pairs.keys), "values": (values, pairs.keys)}
        for what, (array, count) in given.items():
            size = (len(queries), count, width)
            if array.shape != size:
                raise ShapeError(f"{self.name}: {what} are {list(size)}, got {list(array.shape)}")
        if not self.whole or pairs.mask is None:
            return self.attend(p, queries, source, values, pairs)
        y = np.zeros_like(queries)
        for ids, keys in pairs.parts:
            own = Pairs(len(ids), len(keys))
            y[:, ids] = self.attend(p, queries[:, ids], source[:, keys], values[:, keys], own)
        return y

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        """Compute `forward` where sizes are right; if the rule is `whole` there is no mask."""
        raise NotImplementedError(self.name)
