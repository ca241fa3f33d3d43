"""What there is to say about an open model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from volumetric.runtime.device import RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """How a model was opened.

    Attributes
    ----------
    dtype : scheme of most weights as they are stored
    context : tokens that a sequence can hold here
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
