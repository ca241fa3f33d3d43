"""Pools, behind convolutions where they learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import volumetric.layers as nn
from tests.examples.entry import Example, Examples
from tests.learning.tasks import learn

_TIMED = {1: (16, 64, 1024), 2: (8, 64, 64, 64), 3: (2, 32, 32, 32, 32)}


def _images(axes: int, a: int, b: int) -> tuple[int, ...]:
    """Channels and sizes that follow from two widths."""
    if axes == 1:
        return a % 6 + 1, b
    return (a % 3 + 1, b % 9 + 3, a % 7 + 2) if axes == 2 else (a % 2 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1)


def _pool(cases: Mapping[str, Example], sized: nn.LayerSpec, timed: nn.LayerSpec, **task: Any) -> Examples:
    axes = len(next(iter(cases.values()))[1]) - 2
    return Examples(
        cases=cases, sized=lambda r, a, b: (sized, (r, *_images(axes, a, b))), bench=(timed, _TIMED[axes]), **task
    )


POOLS: dict[str, Examples] = {
    "max_pool1d": _pool(
        {
            "max-pool1d": (nn.MaxPool1d(kernel_size=2), (2, 3, 7)),
            "max-pool1d-everything": (
                nn.MaxPool1d(kernel_size=3, stride=2, padding=1, dilation=2, ceil_mode=True),
                (2, 1, 8),
            ),
        },
        sized=nn.MaxPool1d(kernel_size=3, stride=2, padding=1, ceil_mode=True),
        timed=nn.MaxPool1d(kernel_size=2),
    ),
    "max_pool2d": _pool(
        {
            "max-pool2d": (nn.MaxPool2d(kernel_size=2), (2, 2, 5, 6)),
            "max-pool2d-overlapping": (nn.MaxPool2d(kernel_size=(3, 2), stride=(2, 1), padding=(1, 0)), (1, 2, 6, 4)),
            "max-pool2d-ceil": (nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True), (1, 2, 6, 8)),
        },
        sized=nn.MaxPool2d(kernel_size=(3, 2), padding=1),
        timed=nn.MaxPool2d(kernel_size=2),
    ),
    "max_pool3d": _pool(
        {"max-pool3d": (nn.MaxPool3d(kernel_size=(2, 1, 2), stride=(1, 2, 2), padding=(1, 0, 1)), (1, 2, 3, 3, 4))},
        sized=nn.MaxPool3d(kernel_size=2, stride=(1, 2, 1), dilation=(1, 2, 1), padding=1),
        timed=nn.MaxPool3d(kernel_size=2),
    ),
    "avg_pool1d": _pool(
        {"avg-pool1d": (nn.AvgPool1d(kernel_size=3, stride=1, padding=1), (2, 2, 5))},
        sized=nn.AvgPool1d(kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        timed=nn.AvgPool1d(kernel_size=2),
    ),
    "avg_pool2d": _pool(
        {
            "avg-pool2d": (nn.AvgPool2d(kernel_size=2), (2, 2, 5, 4)),
            "avg-pool2d-edges": (
                nn.AvgPool2d(kernel_size=(3, 2), stride=2, padding=1, ceil_mode=True, count_include_pad=False),
                (1, 2, 6, 5),
            ),
            "avg-pool2d-ceil": (nn.AvgPool2d(kernel_size=3, stride=2, padding=1, ceil_mode=True), (1, 2, 5, 6)),
        },
        sized=nn.AvgPool2d(kernel_size=(3, 2), padding=1),
        timed=nn.AvgPool2d(kernel_size=3, stride=2, padding=1),
    ),
    "avg_pool3d": _pool(
        {"avg-pool3d": (nn.AvgPool3d(kernel_size=2, stride=(2, 1, 2), padding=(0, 1, 0)), (1, 2, 4, 2, 3))},
        sized=nn.AvgPool3d(kernel_size=2, stride=(1, 2, 1), padding=1),
        timed=nn.AvgPool3d(kernel_size=2),
        task=learn(rate=0.6),
    ),
    "adaptive_avg_pool1d": _pool(
        {"global-avg1d": (nn.AdaptiveAvgPool1d(output_size=1), (2, 3, 5))},
        sized=nn.AdaptiveAvgPool1d(output_size=1),
        timed=nn.AdaptiveAvgPool1d(output_size=1),
    ),
    "adaptive_avg_pool2d": _pool(
        {
            "global-avg2d": (nn.AdaptiveAvgPool2d(output_size=1), (2, 3, 4, 3)),
            "adaptive-avg2d": (nn.AdaptiveAvgPool2d(output_size=(3, 2)), (2, 2, 5, 4)),
        },
        sized=nn.AdaptiveAvgPool2d(output_size=(3, 2)),
        timed=nn.AdaptiveAvgPool2d(output_size=1),
    ),
    "adaptive_avg_pool3d": _pool(
        {"adaptive-avg3d": (nn.AdaptiveAvgPool3d(output_size=(2, 1, 3)), (1, 2, 3, 2, 4))},
        sized=nn.AdaptiveAvgPool3d(output_size=(2, 1, 3)),
        timed=nn.AdaptiveAvgPool3d(output_size=1),
    ),
    "adaptive_max_pool1d": _pool(
        {"global-max1d": (nn.AdaptiveMaxPool1d(output_size=1), (2, 3, 5))},
        sized=nn.AdaptiveMaxPool1d(output_size=1),
        timed=nn.AdaptiveMaxPool1d(output_size=1),
    ),
    "adaptive_max_pool2d": _pool(
        {
            "adaptive-max2d": (nn.AdaptiveMaxPool2d(output_size=(3, 2)), (2, 2, 5, 4)),
            "global-max2d": (nn.AdaptiveMaxPool2d(output_size=1), (2, 3, 3, 4)),
        },
        sized=nn.AdaptiveMaxPool2d(output_size=(3, 2)),
        timed=nn.AdaptiveMaxPool2d(output_size=1),
    ),
    "adaptive_max_pool3d": _pool(
        {"adaptive-max3d": (nn.AdaptiveMaxPool3d(output_size=2), (1, 2, 3, 2, 4))},
        sized=nn.AdaptiveMaxPool3d(output_size=(2, 1, 3)),
        timed=nn.AdaptiveMaxPool3d(output_size=1),
        task=learn(
            nn.Conv3d(in_channels=1, out_channels=2, kernel_size=2),
            nn.AdaptiveMaxPool3d(output_size=2),
            row=(1, 4, 3, 4),
        ),
    ),
}
