"""Layers one behind the other, by the order of names and by widths: perceptrons, taggers, plain convolutions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final

from volumetric._typing import ROWS, Shape
from volumetric.builders import chain
from volumetric.errors import ShapeError, SpecError
from volumetric.grid import Coord
from volumetric.layers import (
    RNN,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    Clamp,
    Dense,
    Embedding,
    Flatten,
    LayerNorm,
    LayerSpec,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    PositionEmbedding,
    RMSNorm,
)
from volumetric.layers.batch_norm import BatchNorm
from volumetric.layers.conv import Conv
from volumetric.loaders.detect.assumptions import Assumptions
from volumetric.loaders.detect.fills import Fill
from volumetric.loaders.detect.findings import Finding
from volumetric.loaders.detect.modules import BATCH_NORMS
from volumetric.loaders.detect.plans import NetworkPlan, PlanParts

MAX_LAYERS: Final = 512
"""Layers of a chain; more of them are an architecture of its own, not a chain."""
MAX_STARTS: Final = 8
"""Layers that are tried as the first one."""
_PLACE = re.compile(r"(|.*[./])(\d{1,9})")
"""Path of a module that its number names, and that of the module that it is in."""
_POOLS = (MaxPool1d, MaxPool2d, MaxPool3d)
_MEANS = (AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d)


@dataclass(slots=True)
class _Chain:
    """A chain under construction."""

    assumptions: Assumptions
    layers: list[LayerSpec] = field(default_factory=list)
    fills: dict[str, Fill] = field(default_factory=dict)
    placed: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    shape: Shape = ()
    input_shape: Shape = ()
    tokens: bool = False
    pooled: bool = False

    def add(self, layer: LayerSpec, found: Finding | None = None) -> None:
        """Put a layer at the end; raises `ShapeError` if it does not read what is there."""
        after = layer.output_shape(self.shape)
        at = str(Coord(len(self.layers)))
        if found is not None:
            self.fills |= {f"{at}/{name}": fill for name, fill in found.fills.items()}
            self.placed += found.tensors
        self.layers.append(layer)
        self.shape = after

    def ask(self, found: Finding, name: str, why: str) -> Any:
        """Return what was said of one layer, and note that it is missing where nothing was."""
        value = self.assumptions.under(found.path, name)
        if value is None:
            self.missing[f"{found.path}.{name}".lstrip(".")] = why
        return value


def chained(leaves: Sequence[Finding], assumptions: Assumptions) -> PlanParts | None:
    """Put layers one behind the other, in the order of their names, wherever one reads what is made before it.

    Returns
    -------
    None where nothing can stand at the start, or there are more layers than a chain has
    """
    usable = _ordered([found for found in leaves if found.layer is not None])
    if not usable or len(usable) > MAX_LAYERS:
        return None
    # What comes first by its name may be a branch of its own: the start from which most finds its place counts.
    tries = [_built(usable, assumptions)]
    for start in range(1, min(len(usable), MAX_STARTS)):
        with contextlib.suppress(SpecError):  # what was said is meant for another start
            tries.append(_built(usable[start:], assumptions))
    work, left = max(tries, key=lambda made: len(made[0].placed))
    if not work.layers:
        return None
    skipped = {name for found in usable for name in found.tensors} - set(work.placed) - set(left)
    left |= dict.fromkeys(sorted(skipped), "it does not read what the others make, and they do not read what it makes")
    plan = None
    if not work.missing:
        network = chain(work.layers, work.input_shape, "int32" if work.tokens else "float32")
        plan = NetworkPlan(network=network, fills=work.fills)
    numbered = _numbered(usable)
    reason = "numbers of a Sequential give the order" if numbered else "kinds, names and widths give the order"
    if work.pooled:
        reason += "; a linear layer reads as many features as there are channels: the mean of each"
    return PlanParts(
        architecture=f"a chain of {len(work.layers)} layers",
        certainty="possible" if left else "likely",
        reason=reason,
        plan=plan,
        placed=tuple(work.placed),
        assumed=work.assumed,
        missing=work.missing,
        left_out=left,
    )


def _built(usable: Sequence[Finding], assumptions: Assumptions) -> tuple[_Chain, dict[str, str]]:
    """Chain layers from the first one on; return what has no place, too, and why."""
    work, left = _Chain(assumptions), {}
    for i, found in enumerate(usable):
        following = next(iter(usable[i + 1 :]), None)
        try:
            _place(work, found, following)
        except ShapeError as error:
            left |= dict.fromkeys(found.tensors, f"it does not read what is made before it: {error}")
    return work, left


def _numbered(leaves: Sequence[Finding]) -> bool:
    """Whether all are numbered modules of one module, as in torch's Sequential."""
    places = [_PLACE.fullmatch(found.path) for found in leaves]
    return len({None if place is None else place[1] for place in places} | {None}) == 2 and None not in places


def _ordered(leaves: list[Finding]) -> list[Finding]:
    """Order by name where that is a number; else embeddings, convolutions, recurrent layers, and what is linear last.

    A norm stands behind the layer that its name follows.
    """
    if _numbered(leaves):
        return leaves
    ranks: list[int] = []
    for found in leaves:
        norm = isinstance(found.layer, (LayerNorm, RMSNorm))
        ranks.append(ranks[-1] if norm and ranks else 3 if norm else _rank(found.layer))
    return [found for _, found in sorted(zip(ranks, leaves, strict=True), key=lambda pair: pair[0])]


def _rank(layer: LayerSpec | None) -> int:
    if isinstance(layer, (Embedding, PositionEmbedding)):
        return 0
    return 1 if isinstance(layer, (Conv, BatchNorm)) else 3 if isinstance(layer, Dense) else 2


def _place(work: _Chain, found: Finding, following: Finding | None) -> None:
    layer = found.layer
    if isinstance(layer, (Conv, BatchNorm)):
        _image(work, layer, found, following)
        return
    if not work.layers:
        _begin(work, layer)
    elif isinstance(layer, Embedding):
        raise ShapeError("an embedding reads token ids", hint="one can stand at the start alone")
    for name, (value, why) in found.needs.items():
        said = work.assumptions.under(found.path, name)
        if said is None:
            work.missing[f"{found.path}.{name}".lstrip(".")] = why
        elif said != value:
            raise SpecError(f"guess: {name}={said!r} of {found.path} has no layer here", hint=f"{name}={value!r} has")
    if isinstance(layer, RNN):
        said = work.assumptions.under(found.path, "nonlinearity")
        layer = replace(layer, nonlinearity=said or "tanh")
        if said is None:
            work.assumed[f"{found.path}.nonlinearity".lstrip(".")] = "tanh"
    if isinstance(layer, Dense):
        _flatten(work, layer)
        layer.output_shape(work.shape)  # before anything is asked for
        layer = replace(layer, activation=_activation(work, found, following))
    if layer is not None:
        work.add(layer, found)
    if isinstance(layer, (LayerNorm, RMSNorm)) and _gap(found, following) > 1:
        _behind_norm(work, found, following)


def _begin(work: _Chain, layer: LayerSpec | None) -> None:
    if isinstance(layer, PositionEmbedding):
        raise ShapeError("a position embedding reads the rows of another one")
    width = next(
        (getattr(layer, name) for name in ("in_features", "input_size", "num_features") if hasattr(layer, name)), None
    )
    if width is None and layer is not None and not isinstance(layer, Embedding):
        width = _first_width(layer)
    work.tokens = width is None
    work.input_shape = () if width is None else (width,)
    work.shape = (ROWS, *work.input_shape)


def _first_width(layer: LayerSpec) -> int:
    """Features that the first layer inside of a container reads."""
    children = list(layer.children().values())
    return _first_width(children[0]) if children else layer.input_size  # pyright: ignore[reportAttributeAccessIssue]  (recurrent layers alone stand in containers here)


def _activation(work: _Chain, found: Finding, following: Finding | None) -> Any:
    """Activation behind a layer: none at the end; else what was said, unless numbers show that nothing is between."""
    if following is None:
        return "linear"
    if _gap(found, following) == 1:
        return "linear"
    return work.ask(found, "activation", "what stands between two layers without weights is in no tensor") or "linear"


def _gap(found: Finding, following: Finding | None) -> int:
    """Steps from one number of a Sequential to the next; 0 where the two are not numbered so."""
    ours, theirs = (_PLACE.fullmatch(each.path if each else "") for each in (found, following))
    return int(theirs[2]) - int(ours[2]) if ours and theirs and ours[1] == theirs[1] else 0


def _behind_norm(work: _Chain, found: Finding, following: Finding | None) -> None:
    """Place the activation that numbers show to stand behind a norm, which has none of its own."""
    said = _activation(work, found, following)
    if said == "relu":
        work.add(Clamp(min=0.0))
    elif said != "linear":
        raise SpecError(f"guess: behind {found.path}, a norm, activation {said!r} has no layer", hint="linear or relu")


def _image(work: _Chain, layer: Conv | BatchNorm, found: Finding, following: Finding | None) -> None:
    if isinstance(layer, BatchNorm):
        axes = max(len(work.shape) - 2, 1) if work.layers else 1
        fields = {name: getattr(layer, name) for name in ("num_features", "affine")}
        norm = BATCH_NORMS[min(axes, 3) - 1](**fields)
        if not work.layers:
            work.input_shape = (layer.num_features,)
            work.shape = (ROWS, layer.num_features)
        norm.output_shape(work.shape)
        work.add(replace(norm, activation=_activation(work, found, following)), found)
        return
    if not work.layers:
        _begin_image(work, layer, found)
    channels = work.shape[1] if len(work.shape) > 1 else 0
    fields: dict[str, Any] = {"in_channels": channels}
    if channels != layer.in_channels:
        if channels < 1 or channels % layer.in_channels or layer.out_channels % (channels // layer.in_channels):
            raise ShapeError(f"it reads {layer.in_channels} channels, and there are {channels}")
        fields["groups"] = channels // layer.in_channels
    for name in ("stride", "padding"):
        value = work.ask(found, name, "steps and zeros of a convolution are in no tensor")
        fields[name] = (1 if name == "stride" else 0) if value is None else _size(value)
    dilation = work.assumptions.under(found.path, "dilation")
    if dilation is not None:
        fields["dilation"] = _size(dilation)
    normed = following is not None and isinstance(following.layer, BatchNorm)
    pool = work.assumptions.under(found.path, "pool")
    fields["activation"] = "linear" if normed else _activation(work, found, following)
    work.add(replace(layer, **fields), found)
    if pool is not None:
        work.add(_POOLS[layer.spatial - 1](kernel_size=_size(pool)))


def _size(value: Any) -> Any:
    """A number, a name such as same, or a list of numbers, as a layer's field takes it."""
    return tuple(value) if isinstance(value, list) else value


def _begin_image(work: _Chain, layer: Conv, found: Finding) -> None:
    said = work.assumptions.find("input_shape")
    if said is None:
        work.missing["input_shape"] = (
            f"the sizes of what {found.path or 'the first convolution'} reads are in no tensor"
        )
        work.input_shape = (layer.in_channels, *(256,) * layer.spatial)
    else:
        whole = isinstance(said, (list, tuple)) and all(type(n) is int and n > 0 for n in said)
        if not whole or len(said) != 1 + layer.spatial or said[0] % layer.in_channels:
            raise SpecError(
                f"guess: input_shape {said} does not fit {found.what}",
                hint=f"channels and {layer.spatial} sizes, as in {[layer.in_channels, *[32] * layer.spatial]}",
            )
        work.input_shape = tuple(said)
    work.shape = (ROWS, *work.input_shape)


def _flatten(work: _Chain, layer: Dense) -> None:
    """What stands between images and a linear layer: the mean of each channel, or all elements in a row."""
    if len(work.shape) < 3:
        return
    channels, sizes = work.shape[1], work.shape[2:]
    if layer.in_features == channels and prod(sizes) > 1:
        work.add(_MEANS[len(sizes) - 1](output_size=1))
        work.pooled = True
    if layer.in_features == prod(work.shape[1:]) or "input_shape" not in work.missing:
        work.add(Flatten())
    else:
        work.shape = (ROWS, layer.in_features)  # the sizes are not known yet
