"""Windows of token ids, and the ids that follow."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError


def ids_of_text(ids: ArrayLike | str | bytes) -> Array:
    """Return ids as an array; a text becomes its UTF-8 bytes, the ids of `loaders.byte_tokenizer`."""
    if isinstance(ids, str):
        ids = ids.encode()
    return np.frombuffer(ids, np.uint8) if isinstance(ids, bytes) else np.asarray(ids)


def token_windows(ids: ArrayLike | str | bytes, length: int, stride: int | None = None) -> tuple[Array, Array]:
    """Cut a stream of token ids into inputs and the ids that follow them, both int32 ``[windows, length]``.

    Parameters
    ----------
    ids : integers ``[N]``, or a text, whose UTF-8 bytes are the ids
    length : rows of a window
    stride : distance between window starts; None means `length`: no overlap. An incomplete last window is dropped

    Raises
    ------
    ShapeError
        There are fewer than ``length + 1`` ids.
    """
    ids = ids_of_text(ids)
    if ids.ndim != 1 or len(ids) <= length:
        raise ShapeError(
            f"windows of {length} tokens and a next token need at least {length + 1} ids, the text has {ids.size}",
            hint=f"use a longer text, or shorter windows: length = {max(1, ids.size // 4)}",
        )
    starts = np.arange(0, len(ids) - length, stride or length)
    windows = ids[starts[:, None] + np.arange(length + 1)].astype(np.int32)
    return windows[:, :-1], windows[:, 1:]
