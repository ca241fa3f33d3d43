"""Type aliases shared by the whole package. No logic."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Shape: TypeAlias = tuple[int, ...]
Array: TypeAlias = NDArray[Any]
F32Array: TypeAlias = NDArray[np.float32]
U32Array: TypeAlias = NDArray[np.uint32]
IntArray: TypeAlias = NDArray[np.int32]

ROWS = -1
"""Placeholder in a shape for the number of rows (tokens, samples) of a call; always the first axis."""
