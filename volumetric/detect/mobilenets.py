"""MobileNet-v2 (Sandler et al. 2018, arXiv 1801.04381), in torchvision's names and in timm's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from volumetric.base.errors import SpecError
from volumetric.detect.assumptions import Assumptions
from volumetric.detect.findings import Finding
from volumetric.detect.image_network import (
    FilledLayer,
    ImageNetworkBuilder,
    NetworkAttempt,
    batch_norm,
    convolution,
    image_shape,
)
from volumetric.detect.resnets import IMAGE
from volumetric.layers import AdaptiveAvgPool2d, Clamp, Conv2d, Dense, Flatten
from volumetric.network.grid import Coord

STRIDES: Final = (1, 2, 2, 2, 1, 2, 1)
"""Stride of the first block of each stage, in all sizes of the model."""
RELU6: Final = Clamp(min=0.0, max=6.0)
_TIMM = re.compile(r"blocks\.(\d{1,2})\.(\d{1,2})\.(conv_pw|conv_dw|conv_pwl|bn[123])")
_TORCH = re.compile(r"features\.(\d{1,3})\.conv\.(\d)(?:\.([01]))?")

ConvolutionPair = tuple[Finding, Finding]
"""A convolution and its batch norm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MobileNetLayers:
    """The convolutions of a model: of the stem, of each block, and of the head; and the linear layer."""

    stem: ConvolutionPair
    blocks: Sequence[Sequence[ConvolutionPair]]
    head: ConvolutionPair
    classes: Finding


def mobilenet(leaves: Sequence[Finding], assumptions: Assumptions) -> NetworkAttempt | None:
    """Recognise a MobileNet-v2: blocks of expansion, depthwise convolution and projection. None for anything else."""
    named = {finding.path: finding for finding in leaves}
    try:
        parts = _torchvision(named) or _timm(named)
    except KeyError:
        return None
    if parts is None:
        return None
    outs = [_channels(block[-1]) for block in parts.blocks]
    starts = [i for i, width in enumerate(outs) if i == 0 or width != outs[i - 1]]
    if len(starts) != len(STRIDES) or not isinstance(parts.classes.layer, Dense):
        return None
    steps = dict(zip(starts, STRIDES, strict=True))
    stem = parts.stem[0].layer
    if not isinstance(stem, Conv2d):
        return None
    shape = image_shape(assumptions.find("input_shape"), stem.in_channels, IMAGE)
    work = ImageNetworkBuilder()
    at = _add_convolutions(work, parts.stem, stem.in_channels, 2)
    channels = stem.out_channels
    for i, block in enumerate(parts.blocks):
        work.next_plane()
        at = _add_widened_block(work, block, channels, steps.get(i, 1), at)
        channels = outs[i]
    work.next_plane()
    _add_convolutions(work, parts.head, channels, 1)
    work.add(AdaptiveAvgPool2d(output_size=1))
    work.add(Flatten())
    work.add(parts.classes.layer, parts.classes.fills)
    return NetworkAttempt(
        architecture="MobileNet-v2",
        certainty="likely",
        reason="names of torchvision or timm, seven widths; strides and activations are those of the published models",
        plan=work.plan(shape),
        placed=work.placed_tensors,
        assumed={"input_shape": "×".join(map(str, shape))},
    )


def _torchvision(named: Mapping[str, Finding]) -> _MobileNetLayers | None:
    """Convolutions by torchvision's names, which count the layers of Sequentials."""
    numbers = sorted({int(match[1]) for path in named if (match := _TORCH.fullmatch(path))})
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        return None
    blocks: list[list[ConvolutionPair]] = []
    for n in numbers:
        at = f"features.{n}.conv"
        first = [(named[f"{at}.0.0"], named[f"{at}.0.1"])]
        if f"{at}.1.0" in named:  # expanded before
            blocks.append([*first, (named[f"{at}.1.0"], named[f"{at}.1.1"]), (named[f"{at}.2"], named[f"{at}.3"])])
        else:
            blocks.append([*first, (named[f"{at}.1"], named[f"{at}.2"])])
    last = f"features.{len(numbers) + 1}"
    return _MobileNetLayers(
        stem=(named["features.0.0"], named["features.0.1"]),
        blocks=blocks,
        head=(named[f"{last}.0"], named[f"{last}.1"]),
        classes=named["classifier.1"],
    )


def _timm(named: Mapping[str, Finding]) -> _MobileNetLayers | None:
    """Convolutions by timm's names, which show the purpose of each."""
    places = sorted({(int(match[1]), int(match[2])) for path in named if (match := _TIMM.fullmatch(path))})
    if not places:
        return None
    blocks: list[list[ConvolutionPair]] = []
    for stage, index in places:
        at = f"blocks.{stage}.{index}"
        order = ("conv_pw", "conv_dw", "conv_pwl") if f"{at}.conv_pwl" in named else ("conv_dw", "conv_pw")
        blocks.append([(named[f"{at}.{name}"], named[f"{at}.bn{i + 1}"]) for i, name in enumerate(order)])
    return _MobileNetLayers(
        stem=(named["conv_stem"], named["bn1"]),
        blocks=blocks,
        head=(named["conv_head"], named["bn2"]),
        classes=named["classifier"],
    )


def _channels(pair: ConvolutionPair) -> int:
    spec = pair[0].layer
    if not isinstance(spec, Conv2d):
        raise SpecError(f"{pair[0].path} is not a convolution")
    return spec.out_channels


def _pair(pair: ConvolutionPair, channels: int, stride: int) -> list[FilledLayer]:
    spec = pair[0].layer
    taps = max(spec.along("kernel_size", 1)) if isinstance(spec, Conv2d) else 0
    return [convolution(pair[0], channels, stride=stride, padding=taps // 2), batch_norm(pair[1], _channels(pair))]


def _add_convolutions(work: ImageNetworkBuilder, pair: ConvolutionPair, channels: int, stride: int) -> Coord:
    for spec, fills in _pair(pair, channels, stride):
        work.add(spec, fills)
    return work.add(RELU6)


def _add_widened_block(
    work: ImageNetworkBuilder, block: Sequence[ConvolutionPair], channels: int, stride: int, before: Coord
) -> Coord:
    """Place one block; only the last convolution is not activated, the depthwise one has the stride; return its end."""
    wide = channels
    filled_layers: list[FilledLayer] = []
    for i, pair in enumerate(block):
        last = i == len(block) - 1
        filled_layers += _pair(pair, wide, stride if i == len(block) - 2 else 1)
        wide = _channels(pair)
        if not last:
            filled_layers.append((RELU6, {}))
    if stride == 1 and wide == channels:
        work.add_sum(before, filled_layers, ())
    else:
        for spec, fills in filled_layers:
            work.add(spec, fills)
    return max(work.layers)
