"""ResNet (He et al. 2015, arXiv 1512.03385), in torchvision's and timm's names: 18 to 152 layers, wide and grouped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
from volumetric.layers import AdaptiveAvgPool2d, Clamp, Conv2d, Dense, Flatten, MaxPool2d
from volumetric.network.grid import Coord

DEPTHS: Final[Mapping[tuple[int, tuple[int, ...]], int]] = {
    (2, (2, 2, 2, 2)): 18,
    (2, (3, 4, 6, 3)): 34,
    (3, (3, 4, 6, 3)): 50,
    (3, (3, 4, 23, 3)): 101,
    (3, (3, 8, 36, 3)): 152,
}
"""Convolutions of a block and blocks of each stage → the depth in the model's name."""
STRIDES: Final = (1, 2, 2, 2)
"""Stride of the first block of each stage."""
IMAGE: Final = 224
"""Side of the training images of the published models."""
_BLOCK = re.compile(r"layer([1-4])\.(\d{1,3})\.(conv[123]|bn[123]|downsample\.[01])")


def resnet(leaves: Sequence[Finding], assumptions: Assumptions) -> NetworkAttempt | None:
    """Recognise a ResNet: a stem, four stages of blocks with sums, and a linear layer. None for anything else."""
    named = {finding.path: finding for finding in leaves}
    blocks: dict[tuple[int, int], dict[str, Finding]] = {}
    for path, finding in named.items():
        match = _BLOCK.fullmatch(path)
        if match:
            blocks.setdefault((int(match[1]), int(match[2])), {})[match[3]] = finding
    counts = tuple(sum(stage == s for stage, _ in blocks) for s in (1, 2, 3, 4))
    if not {"conv1", "bn1", "fc"} <= named.keys() or not all(counts):
        return None
    if set(blocks) != {(s + 1, i) for s, count in enumerate(counts) for i in range(count)}:
        return None
    stem, head = named["conv1"].layer, named["fc"].layer
    if not isinstance(stem, Conv2d) or not isinstance(head, Dense):
        return None
    standard = stem.along("kernel_size", 1) == (7, 7)
    missing: dict[str, str] = {}
    stride, pooled = assumptions.find("conv1.stride"), assumptions.find("maxpool")
    if not standard:  # those for small images begin with 3×3 kernels, with other strides
        why = "the stem differs from the published models, and no tensor shows its strides"
        missing |= {"conv1.stride": why} if stride is None else {}
        missing |= {"maxpool": why} if pooled is None else {}
    taps = max(stem.along("kernel_size", 1))
    size = IMAGE if standard else 32
    shape = image_shape(assumptions.find("input_shape"), stem.in_channels, size)
    work = ImageNetworkBuilder()
    work.add(*convolution(named["conv1"], stem.in_channels, stride=_step(stride, 2), padding=taps // 2))
    at = work.add(*batch_norm(named["bn1"], stem.out_channels, activation="relu"))
    if pooled is not False:
        at = work.add(MaxPool2d(kernel_size=3, stride=2, padding=1))
    channels = stem.out_channels
    for (stage, index), parts in sorted(blocks.items()):
        work.next_plane()
        channels = _add_resnet_block(work, parts, channels, STRIDES[stage - 1] if index == 0 else 1, at)
        at = work.add(Clamp(min=0.0))
    work.next_plane()
    work.add(AdaptiveAvgPool2d(output_size=1))
    work.add(Flatten())
    work.add(head, named["fc"].fills)
    convolutions = 3 if "conv3" in blocks[1, 0] else 2
    depth = DEPTHS.get((convolutions, counts))
    return NetworkAttempt(
        architecture=f"ResNet-{depth}" if depth else f"a ResNet of {sum(counts)} blocks",
        certainty="likely",
        reason="torchvision's names and shapes; strides and activations are those of the published models",
        plan=None if missing else work.plan(shape),
        placed=work.placed_tensors,
        assumed={"input_shape": "×".join(map(str, shape))},
        missing=missing,
    )


def _step(value: object, default: int) -> int:
    if value is None:
        return default
    if type(value) is not int or not 1 <= value <= 16:
        raise SpecError(f"guess: conv1.stride is {value!r}", hint="give a whole number from 1")
    return value


def _add_resnet_block(
    work: ImageNetworkBuilder, parts: Mapping[str, Finding], channels: int, stride: int, before: Coord
) -> int:
    """Place one block and return its output channels; of three convolutions the second one has the stride."""
    last = 3 if "conv3" in parts else 2
    names = {*(f"{kind}{i}" for kind in ("conv", "bn") for i in range(1, last + 1))}
    if not names <= parts.keys() <= names | {"downsample.0", "downsample.1"}:
        raise SpecError(f"{next(iter(parts.values())).path} is not a block of a ResNet")
    main: list[FilledLayer] = []
    wide = channels
    for i in range(1, last + 1):
        finding = parts[f"conv{i}"]
        spec = finding.layer
        taps = max(spec.along("kernel_size", 1)) if isinstance(spec, Conv2d) else 0
        step = stride if i == (2 if last == 3 else 1) else 1
        main.append(convolution(finding, wide, stride=step, padding=taps // 2))
        wide = spec.out_channels if isinstance(spec, Conv2d) else 0
        main.append(batch_norm(parts[f"bn{i}"], wide, activation="relu" if i < last else "linear"))
    short: list[FilledLayer] = []
    if "downsample.0" in parts:
        short = [convolution(parts["downsample.0"], channels, stride=stride), batch_norm(parts["downsample.1"], wide)]
    work.add_sum(before, main, short)
    return wide
