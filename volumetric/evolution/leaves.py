"""The layers of a network that hold no other layers, each with the place it is found at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from volumetric.layers import LayerSpec, Parallel, ParamSpec, Sequential
from volumetric.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One layer without children.

    Attributes
    ----------
    path : coordinate, then the places inside containers: ``"1.0.0.2"``, ``"1.0.0.2/0/1"``; a gate is ``…/gate``
    spec : the layer
    keys : name of each parameter and buffer → key that its tensor has in `Params`, after following shared links
    """

    path: str
    spec: LayerSpec
    keys: dict[str, str]

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        """Parameters in canonical order."""
        return self.spec.params()


def leaves(network: Network) -> Iterator[Leaf]:
    """Yield the leaves of the enabled layers of `network` in reading order."""
    for coord, spec in network.layers.items():
        if coord not in network.disabled:
            for path, leaf in _walk(str(coord), spec):
                keys = {param.name: network.resolve(f"{path}/{param.name}") for param in leaf.tensors()}
                yield Leaf(path=path, spec=leaf, keys=keys)


def _walk(path: str, spec: LayerSpec) -> Iterator[tuple[str, LayerSpec]]:
    if isinstance(spec, Sequential):
        children: list[tuple[str, LayerSpec]] = [(str(i), child) for i, child in enumerate(spec.layers)]
    elif isinstance(spec, Parallel):
        children = [(str(i), branch) for i, branch in enumerate(spec.branches)]
        children += [] if spec.gate is None else [("gate", spec.gate)]
    else:
        yield path, spec
        return
    for name, child in children:
        yield from _walk(f"{path}/{name}", child)
