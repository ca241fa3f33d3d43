"""What the types of tensors cost a model's predictions, as metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from volumetric.loaders.gguf import GGUFFile, SplitGGUF
from volumetric.loaders.gguf_values import LazyStrings

if TYPE_CHECKING:
    from volumetric.loaders.gguf_write import Metadata

_KEYS: Final = "volumetric.damage.parameters"
_NATS: Final = "volumetric.damage.nats"


def damage_metadata(damage: Mapping[str, float]) -> Metadata:
    """Parameters and nats as two arrays; nothing where nothing was measured."""
    return {_KEYS: list(damage), _NATS: np.array(list(damage.values()), np.float32)} if damage else {}


def read_damage(file: GGUFFile | SplitGGUF) -> dict[str, float]:
    """Return what `damage_metadata` wrote; empty where it did not, or another program changed it."""
    keys, nats = file.metadata.get(_KEYS), file.metadata.get(_NATS)
    if not isinstance(keys, LazyStrings) or not isinstance(nats, np.ndarray) or len(keys) != nats.size:
        return {}
    return dict(zip(keys.decode(), map(float, nats), strict=True))
