"""Layers one behind the other, by the order of names and by widths: perceptrons, taggers, plain convolutions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final

from volumetric.base._typing import ROWS, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.builders import chain
from volumetric.detect.assumptions import AssumedError, Assumptions
from volumetric.detect.fills import Fill
from volumetric.detect.findings import Finding
from volumetric.detect.modules import BATCH_NORMS
from volumetric.detect.order import order_of, place_of, widths
from volumetric.detect.stack import NetworkPlan, PlanParts
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
from volumetric.network.grid import Coord

MAX_LAYERS: Final = 512
"""Layers of a chain; more of them are an architecture of its own, not a chain."""
MAX_STARTS: Final = 8
"""Layers that are tried as the first one."""
_BLOCK = re.compile(r"((?:.*[./])?\d{1,9})[./][^./]*[^./\d][^./]*")
"""Path of a module with a name inside of a block that its number names, and that of the block."""
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

    def add(self, layer: LayerSpec, finding: Finding | None = None) -> None:
        """Put a layer at the end; raises `ShapeError` if it does not read what is there."""
        after = layer.output_shape(self.shape)
        at = str(Coord(len(self.layers)))
        if finding is not None:
            self.fills |= {f"{at}/{name}": fill for name, fill in finding.fills.items()}
            self.placed += finding.tensors
        self.layers.append(layer)
        self.shape = after

    def ask(self, finding: Finding, name: str, why: str) -> Any:
        """Return what was said of one layer, and note that it is missing where nothing was."""
        value = self.assumptions.under(finding.path, name)
        if value is None:
            self.missing[f"{finding.path}.{name}".lstrip(".")] = why
        return value

    def choices(self, finding: Finding) -> dict[str, Any]:
        """Return the values that a layer is made of, and note what is missing or assumed, once for all of its kind."""
        stated_values = {name: self.assumptions.under(finding.path, name) for name in (*finding.asks, *finding.assumes)}
        self.missing |= {name: why for name, why in finding.asks.items() if stated_values[name] is None}
        usual = {name: value for name, value in finding.assumes.items() if stated_values[name] is None}
        self.assumed |= {name: str(value).lower() for name, value in usual.items()}
        return stated_values | usual


def chained(leaves: Sequence[Finding], assumptions: Assumptions) -> PlanParts | None:
    """Put layers one behind the other, in the order of their names, wherever one reads what is made before it.

    Returns
    -------
    None where nothing can stand at the start, or there are more layers than a chain has
    """
    usable = [finding for finding in leaves if finding.layer is not None]
    if not usable or len(usable) > MAX_LAYERS:
        return None
    stated_order = assumptions.find("order")
    order = order_of(usable, stated_order)
    # What comes first by its name may be a branch of its own: the start from which most finds its place counts.
    tries = [_built(order.layers, assumptions)]
    for start in range(1, min(len(usable), MAX_STARTS) if stated_order is None else 1):
        with contextlib.suppress(SpecError):  # what was said is meant for another start
            tries.append(_built(order.layers[start:], assumptions))
    work, left = max(tries, key=lambda attempt: len(attempt[0].placed))
    if not work.layers:
        return None
    skipped = {name for finding in usable for name in finding.tensors} - set(work.placed) - set(left)
    why = "it does not read what the others make, and they do not read what it makes"
    left |= dict.fromkeys(
        sorted(skipped), why if stated_order is None else "it is not among those whose order was said"
    )
    placed = [finding for finding in usable if not set(finding.tensors).isdisjoint(work.placed)]
    if left and stated_order is None:
        order = order_of(placed)
    if not order.sure and len(placed) > 1:
        work.missing = {"order": f"{order.reason} of {', '.join(finding.path for finding in placed)}"} | work.missing
    _ask_for_sums(work, placed)
    plan = None
    if not work.missing:
        network = chain(work.layers, work.input_shape, "int32" if work.tokens else "float32")
        plan = NetworkPlan(network=network, fills=work.fills)
    reason = order.reason
    if work.pooled:
        reason += "; a linear layer reads as many features as there are channels: the mean of each"
    return PlanParts(
        architecture=f"a chain of {len(work.layers)} layers",
        certainty="likely" if order.sure and not left else "possible",
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
    for i, finding in enumerate(usable):
        following = next(iter(usable[i + 1 :]), None)
        try:
            _place(work, finding, following)
        except ShapeError as error:
            left |= dict.fromkeys(finding.tensors, f"it does not read what is made before it: {error}")
    return work, left


def _ask_for_sums(work: _Chain, placed: Sequence[Finding]) -> None:
    """Ask whether blocks of several layers add what they read to what they make, where both are as wide."""
    blocks: dict[str, list[Finding]] = {}
    for finding in placed:
        block = _BLOCK.fullmatch(finding.path)
        if block is not None:
            blocks.setdefault(block[1], []).append(finding)
    for path, layers in blocks.items():
        first, last = widths(layers[0].layer)[0], widths(layers[-1].layer)[1]
        if len(layers) > 1 and first and first == last:
            residual = work.assumptions.find("residual")
            if residual is None:
                work.missing["residual"] = f"whether {path} and its like add what they read to it is in no tensor"
            elif residual is not False:
                raise AssumedError(
                    f"guess: residual={residual!r}: sums of a chain have no layers here", hint="false has"
                )
            return


def _place(work: _Chain, finding: Finding, following: Finding | None) -> None:
    """Add one layer behind those of the chain; note which values of it are missing or assumed.

    Raises `ShapeError` where it does not read what the chain makes.
    """
    layer = finding.layer
    if isinstance(layer, (Conv, BatchNorm)):
        _image(work, layer, finding, following)
        return
    if not work.layers:
        _begin(work, layer)
    elif isinstance(layer, Embedding):
        raise ShapeError("an embedding reads token ids", hint="one can stand at the start alone")
    for name, (value, why) in finding.needs.items():
        stated_value = work.assumptions.under(finding.path, name)
        if stated_value is None:
            work.missing[f"{finding.path}.{name}".lstrip(".")] = why
        elif stated_value != value:
            raise AssumedError(
                f"guess: {name}={stated_value!r} of {finding.path} has no layer here", hint=f"{name}={value!r} has"
            )
    if isinstance(layer, RNN):
        stated_value = work.assumptions.under(finding.path, "nonlinearity")
        layer = replace(layer, nonlinearity=stated_value or "tanh")
        if stated_value is None:
            work.assumed[f"{finding.path}.nonlinearity".lstrip(".")] = "tanh"
    if finding.choose is not None:
        layer, fills = finding.choose(work.choices(finding))
        work.add(layer, replace(finding, fills=fills))
        return
    if isinstance(layer, Dense):
        _flatten(work, layer)
        layer.output_shape(work.shape)  # before anything is asked for
        layer = replace(layer, activation=_activation(work, finding, following))
    if layer is not None:
        work.add(layer, finding)
    if isinstance(layer, (LayerNorm, RMSNorm)) and _gap(finding, following) > 1:
        _behind_norm(work, finding, following)


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
    if not children and hasattr(layer, "embed_dim"):
        return layer.embed_dim  # pyright: ignore[reportAttributeAccessIssue]  (as asked)
    return _first_width(children[0]) if children else layer.input_size  # pyright: ignore[reportAttributeAccessIssue]  (recurrent layers alone stand in containers here)


def _activation(work: _Chain, finding: Finding, following: Finding | None) -> Any:
    """Activation behind a layer: none at the end; else what was said, unless numbers show that nothing is between."""
    if following is None:
        return "linear"
    if _gap(finding, following) == 1:
        return "linear"
    return work.ask(finding, "activation", "what stands between two layers without weights is in no tensor") or "linear"


def _gap(finding: Finding, following: Finding | None) -> int:
    """Steps from one number of a Sequential to the next; 0 where the two are not numbered so."""
    ours, theirs = place_of(finding), None if following is None else place_of(following)
    return theirs[1] - ours[1] if ours and theirs and ours[0] == theirs[0] else 0


def _behind_norm(work: _Chain, finding: Finding, following: Finding | None) -> None:
    """Place the activation that numbers show to stand behind a norm, which has none of its own."""
    activation = _activation(work, finding, following)
    if activation == "relu":
        work.add(Clamp(min=0.0))
    elif activation != "linear":
        raise AssumedError(
            f"guess: behind {finding.path}, a norm, activation {activation!r} has no layer", hint="linear or relu"
        )


def _image(work: _Chain, layer: Conv | BatchNorm, finding: Finding, following: Finding | None) -> None:
    """Add a convolution or a batch norm to the chain, and a pool behind it where `pool` is assumed."""
    if isinstance(layer, BatchNorm):
        axes = max(len(work.shape) - 2, 1) if work.layers else 1
        fields = {name: getattr(layer, name) for name in ("num_features", "affine")}
        norm = BATCH_NORMS[min(axes, 3) - 1](**fields)
        if not work.layers:
            work.input_shape = (layer.num_features,)
            work.shape = (ROWS, layer.num_features)
        norm.output_shape(work.shape)
        work.add(replace(norm, activation=_activation(work, finding, following)), finding)
        return
    if not work.layers:
        _begin_image(work, layer, finding)
    channels = work.shape[1] if len(work.shape) > 1 else 0
    fields: dict[str, Any] = {"in_channels": channels}
    if channels != layer.in_channels:
        if channels < 1 or channels % layer.in_channels or layer.out_channels % (channels // layer.in_channels):
            raise ShapeError(f"it reads {layer.in_channels} channels, and there are {channels}")
        fields["groups"] = channels // layer.in_channels
    for name in ("stride", "padding"):
        value = work.ask(finding, name, "steps and zeros of a convolution are in no tensor")
        fields[name] = (1 if name == "stride" else 0) if value is None else _size(value)
    dilation = work.assumptions.under(finding.path, "dilation")
    if dilation is not None:
        fields["dilation"] = _size(dilation)
    normed = following is not None and isinstance(following.layer, BatchNorm)
    pool = work.assumptions.under(finding.path, "pool")
    fields["activation"] = "linear" if normed else _activation(work, finding, following)
    work.add(replace(layer, **fields), finding)
    if pool is not None:
        work.add(_POOLS[layer.spatial - 1](kernel_size=_size(pool)))


def _size(value: Any) -> Any:
    """A number, a name such as same, or a list of numbers, as a layer's field takes it."""
    return tuple(value) if isinstance(value, list) else value


def _begin_image(work: _Chain, layer: Conv, finding: Finding) -> None:
    stated_shape = work.assumptions.find("input_shape")
    if stated_shape is None:
        work.missing["input_shape"] = (
            f"the sizes of what {finding.path or 'the first convolution'} reads are in no tensor"
        )
        work.input_shape = (layer.in_channels, *(256,) * layer.spatial)
    else:
        whole = isinstance(stated_shape, (list, tuple)) and all(type(n) is int and n > 0 for n in stated_shape)
        if not whole or len(stated_shape) != 1 + layer.spatial or stated_shape[0] % layer.in_channels:
            raise AssumedError(
                f"guess: input_shape {stated_shape} does not fit {finding.what}",
                hint=f"channels and {layer.spatial} sizes, as in {[layer.in_channels, *[32] * layer.spatial]}",
            )
        work.input_shape = tuple(stated_shape)
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
