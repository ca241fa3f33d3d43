"""Networks of one layer. Networks lie above the layers: what makes them says so here when it is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.layers.base import LayerSpec

F = TypeVar("F", bound=Callable[[LayerSpec, Shape], Any])
_makers: list[Callable[[LayerSpec, Shape], Any]] = []


def makes_networks(maker: F) -> F:
    """Register, as a decorator, what returns a network of a layer and the shape of one row of its input."""
    _makers.append(maker)
    return maker


def network_of(layer: LayerSpec, input_shape: Shape) -> Any:
    """Return a `Network` of a layer alone.

    Parameters
    ----------
    input_shape : of one row

    Raises
    ------
    SpecError, ShapeError : the layer does not read such rows, or nothing that makes networks has been imported
    """
    if not _makers:
        raise SpecError("nothing that makes networks has been imported", hint="import volumetric.network before")
    return _makers[-1](layer, input_shape)
