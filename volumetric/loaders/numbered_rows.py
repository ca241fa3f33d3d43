"""View of numbered tensors, one for each head, as the rows of one matrix."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

import numpy as np

from volumetric.dtypes import Packed
from volumetric.loaders.quantised.quantised_source import QuantisedMatrix, QuantisedSource, QuantisedWeights
from volumetric.loaders.tensor_source import TensorSource

_ROW: Final = re.compile(r"(.*\.[qk]_layernorm\.norms)\.(0|[1-9]\d{0,4})\.weight")
"""StableLM's norms of heads."""


def join_numbered_rows(source: TensorSource) -> TensorSource:
    """Return the source with ``….norms.*.weight`` ``[heads, width]`` instead of ``….norms.0.weight`` and so on.

    Tensors whose numbers, sizes or types do not match stay separate, and then fit no network.
    """
    names_by_star: dict[str, dict[int, str]] = defaultdict(dict)
    for name in source.entries:
        if match := _ROW.fullmatch(name):
            names_by_star[f"{match[1]}.*.weight"][int(match[2])] = name
    matrices = {
        star: matrix for star, numbered in names_by_star.items() if (matrix := _matrix(source, numbered)) is not None
    }
    return QuantisedSource(source, QuantisedWeights(matrices=matrices)) if matrices else source


def _matrix(source: TensorSource, numbered: dict[int, str]) -> QuantisedMatrix | None:
    if numbered.keys() != set(range(len(numbered))):
        return None
    names = tuple(numbered[i] for i in range(len(numbered)))
    kinds = {(source.entries[name].type, source.entries[name].shape) for name in names}
    shape = source.entries[names[0]].shape
    scheme = source.scheme(names[0])
    if len(kinds) > 1 or len(shape) != 1 or scheme.has_scale:
        return None

    def rows(start: int, stop: int) -> Packed:
        return Packed.from_array(np.stack([source.packed(name).codes().reshape(-1) for name in names[start:stop]]))

    return QuantisedMatrix(shape=(len(names), *shape), scheme=scheme, parts=names, rows=rows)


def row_names(source: str, rows: int) -> list[str]:
    """Names of the tensors that `join_numbered_rows` joins."""
    return [source.replace("*", str(i)) for i in range(rows)]
