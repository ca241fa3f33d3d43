"""Facts about an open model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from volumetric.base.notebook_html import ShowsFields
from volumetric.run.device import RunOptions

DEFAULT_CONTEXT: Final = 4096
"""Default context if the model allows more: caches of a long-context model can be larger than its weights."""

ENDLESS: Final = 2**31 - 1
"""Context of models with unbounded streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo(ShowsFields):
    """Facts about an open model.

    Attributes
    ----------
    dtype : scheme of most stored weights
    context : most tokens of a sequence; `ENDLESS` if unbounded
    context_length : tokens that the model was trained for
    """

    name: str
    path: Path
    device: str
    dtype: str
    context: int
    context_length: int
    vocab_size: int
    options: RunOptions

    @property
    def window(self) -> int:
        """Default tokens of a window: the context, unless it is unbounded."""
        return self.context if self.context < ENDLESS else self.context_length or DEFAULT_CONTEXT
