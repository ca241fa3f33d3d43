"""Pooling of whole texts on a device: what callers pass, and the checks that devices share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import ShapeError, VolumetricError
from volumetric.network import INPUT, OUTPUT
from volumetric.run.device import RowInputs
from volumetric.run.plan import Plan
from volumetric.run.sequence_state import check_capacity, check_inputs, check_vocabulary

Pooling = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
"""How the hidden states of a text become one row, see `volumetric.generate.encoder.pool`."""


@runtime_checkable
class PoolsTexts(Protocol):
    """An executable that pools the rows of whole texts on the device, so that hidden states stay there."""

    @property
    def can_pool(self) -> bool:
        """Whether `pool_texts` supports this network."""
        ...

    def pool_texts(
        self, texts: Sequence[RowInputs], modes: Sequence[Pooling], *, output: str = OUTPUT, skipped: int = 0
    ) -> NDArray[np.float32]:
        """Return a pooled row of an output for each text, ``[n, d · modes]``, a new array.

        Parameters
        ----------
        texts : rows of each text, from position 0; as `SequenceRows.x`
        modes : poolings, whose results are concatenated
        skipped : rows at the start of each text that do not count, except its last one

        Raises
        ------
        GenerationError : a text exceeds the context, or a token id is outside of the vocabulary
        ShapeError : rows do not match the plan's inputs
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class CheckedTexts:
    """Texts after checks: the rows of all of them by the plan's inputs, concatenated, and the rows of each text."""

    inputs: Mapping[str, NDArray[Any]]
    lengths: list[int]


def check_whole_texts(plan: Plan, texts: Sequence[RowInputs], context: int) -> CheckedTexts:
    """Check texts at the cost of one, and concatenate them.

    Raises
    ------
    ShapeError : rows do not match the plan's inputs
    GenerationError : a text exceeds the context, or an id is outside of the vocabulary
    """
    if not texts:
        raise ShapeError("pooling needs the rows of at least one text, got none")
    named = [text if isinstance(text, Mapping) else {INPUT: text} for text in texts]
    names = named[0].keys()
    if INPUT in names and all(text.keys() == names for text in named):
        try:
            together = {name: np.concatenate([text[name] for text in named]) for name in names}
            lengths = [len(text[INPUT]) for text in named]
            even = all(len(text[name]) == n for name in names for text, n in zip(named, lengths, strict=True))
            if even and min(lengths) > 0:
                inputs = _checked(plan, together)
                check_capacity(0, max(lengths), context)
                return CheckedTexts(inputs, lengths)
        except (VolumetricError, ValueError, TypeError):
            pass  # one by one, for an error that has the position within its text
    parts = [_checked(plan, text) for text in named]
    lengths = [len(next(iter(part.values()))) for part in parts]
    for length in lengths:
        check_capacity(0, length, context)
    return CheckedTexts({name: np.concatenate([part[name] for part in parts]) for name in plan.inputs}, lengths)


def _checked(plan: Plan, x: RowInputs) -> dict[str, NDArray[Any]]:
    inputs = check_inputs(plan, x)
    for name, i in plan.inputs.items():
        if plan.values[i].dtype == "int32":
            check_vocabulary(plan, inputs[name], name)
    return inputs
