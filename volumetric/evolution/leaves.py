"""The layers of a network that have weights of their own, or hold no others, each with the place it is found at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from volumetric.layers import LayerSpec, Parallel, ParamSpec
from volumetric.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One layer without children, or what a container has besides them.

    Attributes
    ----------
    path : coordinate, then the places inside containers: ``"1.0.0.2"``, ``"1.0.0.2/0/1"``; a gate is ``…/gate``, and
        parts of a program are ``…/edges.<name>``, ``…/regions.<name>`` and so on
    spec : the layer
    tensors : its own parameters and buffers in canonical order, not those of layers inside
    keys : name of each of them → key that its tensor has in `Params`, after following shared links
    part : of a program, what of it this is, as ``"edge cross"``; only such parts of one kind are alike
    """

    path: str
    spec: LayerSpec
    tensors: tuple[ParamSpec, ...]
    keys: dict[str, str]
    part: str = ""

    @property
    def kind(self) -> str:
        """Kind of the layer, or of the part of a program."""
        return " ".join(filter(None, (self.spec.kind, self.part)))

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        """Its own parameters in canonical order."""
        return tuple(spec for spec in self.tensors if not spec.buffer)


def leaves(network: Network) -> Iterator[Leaf]:
    """Yield the leaves of the enabled layers of `network` in reading order."""
    for coord, spec in network.layers.items():
        if coord not in network.disabled:
            for path, leaf, own in _walk(str(coord), spec):
                keys = {param.name: network.resolve(f"{path}/{param.name}") for param in own}
                if leaf.kind == "program":
                    yield from _parts(path, leaf, own, keys)
                else:
                    yield Leaf(path=path, spec=leaf, tensors=own, keys=keys)


def _parts(path: str, spec: LayerSpec, own: tuple[ParamSpec, ...], keys: dict[str, str]) -> Iterator[Leaf]:
    """Yield the regions, edges and ports of a program that have weights."""
    from volumetric.evolution.programs.parts import kind_of_part, parts_of
    from volumetric.layers import Program

    assert isinstance(spec, Program)
    for part, names in parts_of(spec).items():
        inside = tuple(param for param in own if param.name in names)
        own_keys = {param.name: keys[param.name] for param in inside}
        yield Leaf(path=f"{path}/{part}", spec=spec, tensors=inside, keys=own_keys, part=kind_of_part(spec, part))


def _walk(path: str, spec: LayerSpec) -> Iterator[tuple[str, LayerSpec, tuple[ParamSpec, ...]]]:
    children = spec.children()
    if isinstance(spec, Parallel) and spec.gate is not None:
        children["gate"] = spec.gate
    for name, child in children.items():
        yield from _walk(f"{path}/{name}", child)
    inside = tuple(f"{name}/" for name in children)
    own = tuple(tensor for tensor in spec.tensors() if not tensor.name.startswith(inside))
    if own or not children:
        yield path, spec, own
