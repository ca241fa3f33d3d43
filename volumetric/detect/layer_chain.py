"""Chains of layers, ordered by names and widths: perceptrons, taggers, plain convolutional networks."""

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
from volumetric.detect.findings import Finding
from volumetric.detect.image_network import NetworkAttempt, NetworkPlan
from volumetric.detect.layer_order import input_and_output_width, order_of, place_of
from volumetric.detect.parameter_fills import ParameterFill
from volumetric.detect.single_layers import BATCH_NORMS
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
"""Maximum layers of a chain; more layers are another architecture, not a chain."""
MAX_STARTS: Final = 8
"""Number of layers that are tried as the first one."""
_BLOCK = re.compile(r"((?:.*[./])?\d{1,9})[./][^./]*[^./\d][^./]*")
"""Matches the path of a named module in a numbered block; its group is the path of the block."""
_POOLS = (MaxPool1d, MaxPool2d, MaxPool3d)
_MEANS = (AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d)


@dataclass(slots=True)
class _ChainBuilder:
    """A chain under construction."""

    assumptions: Assumptions
    layers: list[LayerSpec] = field(default_factory=list)
    fills: dict[str, ParameterFill] = field(default_factory=dict)
    placed: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    shape: Shape = ()
    input_shape: Shape = ()
    tokens: bool = False
    pooled: bool = False

    def add(self, layer: LayerSpec, finding: Finding | None = None) -> None:
        """Append a layer; raises `ShapeError` if it cannot read the output of the chain."""
        after = layer.output_shape(self.shape)
        at = str(Coord(len(self.layers)))
        if finding is not None:
            self.fills |= {f"{at}/{name}": fill for name, fill in finding.fills.items()}
            self.placed += finding.tensors
        self.layers.append(layer)
        self.shape = after

    def require_value(self, finding: Finding, name: str, why: str) -> Any:
        """Return the value that the user gave for a layer; if there is none, record it as missing."""
        value = self.assumptions.find_for_layer(finding.path, name)
        if value is None:
            self.missing[f"{finding.path}.{name}".lstrip(".")] = why
        return value

    def layer_choices(self, finding: Finding) -> dict[str, Any]:
        """Return the values that build a layer; record missing and assumed ones, once for all layers of the kind."""
        stated_values = {
            name: self.assumptions.find_for_layer(finding.path, name) for name in (*finding.asks, *finding.assumes)
        }
        self.missing |= {name: why for name, why in finding.asks.items() if stated_values[name] is None}
        usual = {name: value for name, value in finding.assumes.items() if stated_values[name] is None}
        self.assumed |= {name: str(value).lower() for name, value in usual.items()}
        return stated_values | usual


def chain_layers(leaves: Sequence[Finding], assumptions: Assumptions) -> NetworkAttempt | None:
    """Chain layers in the order of their names; skip layers that cannot read the output so far.

    Returns
    -------
    None if no layer can be the first, or there are more than `MAX_LAYERS` layers
    """
    usable = [finding for finding in leaves if finding.layer is not None]
    if not usable or len(usable) > MAX_LAYERS:
        return None
    stated_order = assumptions.find("order")
    order = order_of(usable, stated_order)
    # The first layer by name may belong to another branch: the start that places most tensors wins.
    tries = [_try_chain(order.layers, assumptions)]
    for start in range(1, min(len(usable), MAX_STARTS) if stated_order is None else 1):
        with contextlib.suppress(SpecError):  # the user's values are meant for another start
            tries.append(_try_chain(order.layers[start:], assumptions))
    work, left = max(tries, key=lambda attempt: len(attempt[0].placed))
    if not work.layers:
        return None
    skipped = {name for finding in usable for name in finding.tensors} - set(work.placed) - set(left)
    why = "it cannot read the output of the other layers, and they cannot read its output"
    left |= dict.fromkeys(sorted(skipped), why if stated_order is None else "the given order does not name it")
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
        reason += "; a linear layer reads one feature for each channel: the mean of the channel"
    return NetworkAttempt(
        architecture=f"a chain of {len(work.layers)} layers",
        certainty="likely" if order.sure and not left else "possible",
        reason=reason,
        plan=plan,
        placed=tuple(work.placed),
        assumed=work.assumed,
        missing=work.missing,
        left_out=left,
    )


def _try_chain(usable: Sequence[Finding], assumptions: Assumptions) -> tuple[_ChainBuilder, dict[str, str]]:
    """Chain layers from the first one on; return the chain, and tensors without a place with the reason."""
    work, left = _ChainBuilder(assumptions), {}
    for i, finding in enumerate(usable):
        following = next(iter(usable[i + 1 :]), None)
        try:
            _place_layer(work, finding, following)
        except ShapeError as error:
            left |= dict.fromkeys(finding.tensors, f"it cannot read the output of the layers before it: {error}")
    return work, left


def _ask_for_sums(work: _ChainBuilder, placed: Sequence[Finding]) -> None:
    """Ask whether blocks of several layers have residual sums, if their input and output have the same width."""
    blocks: dict[str, list[Finding]] = {}
    for finding in placed:
        block = _BLOCK.fullmatch(finding.path)
        if block is not None:
            blocks.setdefault(block[1], []).append(finding)
    for path, layers in blocks.items():
        first, last = input_and_output_width(layers[0].layer)[0], input_and_output_width(layers[-1].layer)[1]
        if len(layers) > 1 and first and first == last:
            residual = work.assumptions.find("residual")
            if residual is None:
                work.missing["residual"] = (
                    f"no tensor shows whether blocks such as {path} add their input to their output"
                )
            elif residual is not False:
                raise AssumedError(
                    f"guess: residual={residual!r} is not supported: a chain has no residual sums",
                    hint="use residual=false",
                )
            return


def _place_layer(work: _ChainBuilder, finding: Finding, following: Finding | None) -> None:
    """Append one layer to the chain; record missing and assumed values.

    Raises `ShapeError` if it cannot read the output of the chain.
    """
    layer = finding.layer
    if isinstance(layer, (Conv, BatchNorm)):
        _place_image_layer(work, layer, finding, following)
        return
    if not work.layers:
        _begin_chain(work, layer)
    elif isinstance(layer, Embedding):
        raise ShapeError("an embedding reads token ids", hint="an embedding can only be the first layer")
    for name, (value, why) in finding.needs.items():
        stated_value = work.assumptions.find_for_layer(finding.path, name)
        if stated_value is None:
            work.missing[f"{finding.path}.{name}".lstrip(".")] = why
        elif stated_value != value:
            raise AssumedError(
                f"guess: {name}={stated_value!r} of {finding.path} is not supported", hint=f"use {name}={value!r}"
            )
    if isinstance(layer, RNN):
        stated_value = work.assumptions.find_for_layer(finding.path, "nonlinearity")
        layer = replace(layer, nonlinearity=stated_value or "tanh")
        if stated_value is None:
            work.assumed[f"{finding.path}.nonlinearity".lstrip(".")] = "tanh"
    if finding.choose is not None:
        layer, fills = finding.choose(work.layer_choices(finding))
        work.add(layer, replace(finding, fills=fills))
        return
    if isinstance(layer, Dense):
        _place_flattening(work, layer)
        layer.output_shape(work.shape)  # before any value is requested
        layer = replace(layer, activation=_activation(work, finding, following))
    if layer is not None:
        work.add(layer, finding)
    if isinstance(layer, (LayerNorm, RMSNorm)) and _numbering_gap(finding, following) > 1:
        _place_norm_activation(work, finding, following)


def _begin_chain(work: _ChainBuilder, layer: LayerSpec | None) -> None:
    if isinstance(layer, PositionEmbedding):
        raise ShapeError("a position embedding cannot be the first layer")
    width = next(
        (getattr(layer, name) for name in ("in_features", "input_size", "num_features") if hasattr(layer, name)), None
    )
    if width is None and layer is not None and not isinstance(layer, Embedding):
        width = _first_width(layer)
    work.tokens = width is None
    work.input_shape = () if width is None else (width,)
    work.shape = (ROWS, *work.input_shape)


def _first_width(layer: LayerSpec) -> int:
    """Number of features that the first layer inside a container reads."""
    children = list(layer.children().values())
    if not children and hasattr(layer, "embed_dim"):
        return layer.embed_dim  # pyright: ignore[reportAttributeAccessIssue]  (checked by hasattr)
    return _first_width(children[0]) if children else layer.input_size  # pyright: ignore[reportAttributeAccessIssue]  (only recurrent layers are in containers here)


def _activation(work: _ChainBuilder, finding: Finding, following: Finding | None) -> Any:
    """Activation after a layer: none at the end or between neighbouring numbers, else the value from the user."""
    if following is None:
        return "linear"
    if _numbering_gap(finding, following) == 1:
        return "linear"
    return work.require_value(finding, "activation", "no tensor shows the activation between two layers") or "linear"


def _numbering_gap(finding: Finding, following: Finding | None) -> int:
    """Difference of the numbers of two modules of one Sequential; 0 if they are not."""
    ours, theirs = place_of(finding), None if following is None else place_of(following)
    return theirs[1] - ours[1] if ours and theirs and ours[0] == theirs[0] else 0


def _place_norm_activation(work: _ChainBuilder, finding: Finding, following: Finding | None) -> None:
    """Place the activation after a norm, if the numbers of a Sequential leave room for one."""
    activation = _activation(work, finding, following)
    if activation == "relu":
        work.add(Clamp(min=0.0))
    elif activation != "linear":
        raise AssumedError(
            f"guess: activation {activation!r} after the norm {finding.path} is not supported",
            hint="use linear or relu",
        )


def _place_image_layer(
    work: _ChainBuilder, layer: Conv | BatchNorm, finding: Finding, following: Finding | None
) -> None:
    """Append a convolution or a batch norm to the chain, then a pooling layer if the user gives `pool`."""
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
        _begin_image_chain(work, layer, finding)
    channels = work.shape[1] if len(work.shape) > 1 else 0
    fields: dict[str, Any] = {"in_channels": channels}
    if channels != layer.in_channels:
        if channels < 1 or channels % layer.in_channels or layer.out_channels % (channels // layer.in_channels):
            raise ShapeError(f"it reads {layer.in_channels} channels, but the input has {channels}")
        fields["groups"] = channels // layer.in_channels
    for name in ("stride", "padding"):
        value = work.require_value(finding, name, "no tensor shows stride and padding of a convolution")
        fields[name] = (1 if name == "stride" else 0) if value is None else _size(value)
    dilation = work.assumptions.find_for_layer(finding.path, "dilation")
    if dilation is not None:
        fields["dilation"] = _size(dilation)
    normed = following is not None and isinstance(following.layer, BatchNorm)
    pool = work.assumptions.find_for_layer(finding.path, "pool")
    fields["activation"] = "linear" if normed else _activation(work, finding, following)
    work.add(replace(layer, **fields), finding)
    if pool is not None:
        work.add(_POOLS[layer.spatial - 1](kernel_size=_size(pool)))


def _size(value: Any) -> Any:
    """Convert a JSON value to the value of a layer's field: a number, a name such as same, or a tuple."""
    return tuple(value) if isinstance(value, list) else value


def _begin_image_chain(work: _ChainBuilder, layer: Conv, finding: Finding) -> None:
    stated_shape = work.assumptions.find("input_shape")
    if stated_shape is None:
        work.missing["input_shape"] = f"no tensor shows the input sizes of {finding.path or 'the first convolution'}"
        work.input_shape = (layer.in_channels, *(256,) * layer.spatial)
    else:
        whole = isinstance(stated_shape, (list, tuple)) and all(type(n) is int and n > 0 for n in stated_shape)
        if not whole or len(stated_shape) != 1 + layer.spatial or stated_shape[0] % layer.in_channels:
            raise AssumedError(
                f"guess: input_shape {stated_shape} does not fit {finding.what}",
                hint=(
                    f"give channels and {layer.spatial} sizes, for example {[layer.in_channels, *[32] * layer.spatial]}"
                ),
            )
        work.input_shape = tuple(stated_shape)
    work.shape = (ROWS, *work.input_shape)


def _place_flattening(work: _ChainBuilder, layer: Dense) -> None:
    """Place the layer between images and a linear layer: the mean of each channel, or a flatten."""
    if len(work.shape) < 3:
        return
    channels, sizes = work.shape[1], work.shape[2:]
    if layer.in_features == channels and prod(sizes) > 1:
        work.add(_MEANS[len(sizes) - 1](output_size=1))
        work.pooled = True
    if layer.in_features == prod(work.shape[1:]) or "input_shape" not in work.missing:
        work.add(Flatten())
    else:
        work.shape = (ROWS, layer.in_features)  # the sizes are not yet known
