"""What there is to say about an open model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from volumetric.run.device import RunOptions

DEFAULT_CONTEXT: Final = 4096
"""Context when none is asked for and the model allows more: caches of a long-context model can exceed its weights."""

ENDLESS: Final = 2**31 - 1
"""Context of models whose streams have no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """How a model was opened.

    Attributes
    ----------
    dtype : scheme of most weights as they are stored
    context : tokens that a sequence can hold here; `ENDLESS` where it has no end
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
        """Tokens that are taken together where nothing says how many: the context, if that has an end."""
        return self.context if self.context < ENDLESS else self.context_length or DEFAULT_CONTEXT
