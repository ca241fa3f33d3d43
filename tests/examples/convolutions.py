"""Convolutions, plain and transposed."""

from __future__ import annotations

import volumetric.layers as nn
from tests.examples.entry import Examples

CONVOLUTIONS: dict[str, Examples] = {
    "conv1d": Examples(
        cases={
            "conv1d": (nn.Conv1d(in_channels=2, out_channels=3, kernel_size=3), (2, 2, 7)),
            "conv1d-same": (
                nn.Conv1d(in_channels=2, out_channels=2, kernel_size=4, padding="same", dilation=2, activation="tanh"),
                (1, 2, 9),
            ),
        },
        sized=lambda r, a, b: (
            nn.Conv1d(in_channels=a % 6 + 1, out_channels=b % 7 + 1, kernel_size=3, padding=1),
            (r, a % 6 + 1, b),
        ),
        bench=(nn.Conv1d(in_channels=64, out_channels=64, kernel_size=3, padding=1), (16, 64, 1024)),
    ),
    "conv2d": Examples(
        cases={
            "conv2d": (
                nn.Conv2d(in_channels=2, out_channels=2, kernel_size=3, padding=1, activation="silu"),
                (2, 2, 3, 5),
            ),
            "conv2d-everything": (
                nn.Conv2d(
                    in_channels=4,
                    out_channels=6,
                    kernel_size=(3, 2),
                    stride=(2, 3),
                    padding=(1, 2),
                    dilation=(1, 2),
                    groups=2,
                    activation="gelu_tanh",
                ),
                (1, 4, 5, 7),
            ),
            "conv2d-depthwise": (
                nn.Conv2d(in_channels=3, out_channels=6, kernel_size=2, padding="valid", groups=3, bias=False),
                (1, 3, 3, 4),
            ),
            "conv2d-pointwise": (nn.Conv2d(in_channels=3, out_channels=2, kernel_size=1, stride=2), (2, 3, 3, 3)),
        },
        sized=lambda r, a, b: (
            nn.Conv2d(
                in_channels=2 * (a % 3 + 1), out_channels=4, kernel_size=(3, 2), stride=(2, 1), padding=1, groups=2
            ),
            (r, 2 * (a % 3 + 1), b % 9 + 1, a % 7 + 1),
        ),
        bench=(nn.Conv2d(in_channels=64, out_channels=64, kernel_size=3, padding=1), (8, 64, 32, 32)),
    ),
    "conv3d": Examples(
        cases={
            "conv3d": (
                nn.Conv3d(in_channels=2, out_channels=2, kernel_size=(2, 1, 3), stride=(1, 2, 1), padding=(0, 1, 1)),
                (1, 2, 3, 3, 3),
            )
        },
        sized=lambda r, a, b: (
            nn.Conv3d(in_channels=a % 2 + 1, out_channels=b % 3 + 1, kernel_size=2, padding=1, dilation=(1, 2, 1)),
            (r, a % 2 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
        ),
        bench=(nn.Conv3d(in_channels=16, out_channels=32, kernel_size=3, padding=1), (2, 16, 16, 24, 24)),
    ),
    "conv_transpose1d": Examples(
        cases={
            "conv-transpose1d": (
                nn.ConvTranspose1d(in_channels=2, out_channels=3, kernel_size=3, activation="tanh"),
                (2, 2, 4),
            ),
            "conv-transpose1d-long-dilation": (
                nn.ConvTranspose1d(
                    in_channels=2, out_channels=2, kernel_size=2, dilation=3, output_padding=2, padding=1
                ),
                (1, 2, 3),
            ),
        },
        sized=lambda r, a, b: (
            nn.ConvTranspose1d(
                in_channels=a % 6 + 1, out_channels=b % 7 + 1, kernel_size=3, stride=2, output_padding=1
            ),
            (r, a % 6 + 1, b),
        ),
        bench=(nn.ConvTranspose1d(in_channels=64, out_channels=64, kernel_size=4, stride=2, padding=1), (16, 64, 512)),
    ),
    "conv_transpose2d": Examples(
        cases={
            "conv-transpose2d-everything": (
                nn.ConvTranspose2d(
                    in_channels=4,
                    out_channels=6,
                    kernel_size=(3, 2),
                    stride=(2, 3),
                    padding=(1, 0),
                    output_padding=(1, 2),
                    dilation=(1, 2),
                    groups=2,
                    activation="silu",
                ),
                (1, 4, 2, 3),
            ),
            "conv-transpose2d-no-bias": (
                nn.ConvTranspose2d(in_channels=1, out_channels=1, kernel_size=2, stride=3, bias=False),
                (2, 1, 2, 2),
            ),
        },
        sized=lambda r, a, b: (
            nn.ConvTranspose2d(
                in_channels=2 * (a % 3 + 1), out_channels=4, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), groups=2
            ),
            (r, 2 * (a % 3 + 1), b % 9 + 1, a % 7 + 1),
        ),
        bench=(
            nn.ConvTranspose2d(in_channels=64, out_channels=32, kernel_size=4, stride=2, padding=1),
            (8, 64, 24, 24),
        ),
    ),
    "conv_transpose3d": Examples(
        cases={
            "conv-transpose3d": (
                nn.ConvTranspose3d(
                    in_channels=2, out_channels=1, kernel_size=(2, 1, 3), stride=(1, 2, 1), padding=(0, 0, 1)
                ),
                (1, 2, 2, 2, 3),
            )
        },
        sized=lambda r, a, b: (
            nn.ConvTranspose3d(in_channels=a % 2 + 1, out_channels=b % 3 + 1, kernel_size=2, dilation=(1, 2, 1)),
            (r, a % 2 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
        ),
        bench=(nn.ConvTranspose3d(in_channels=16, out_channels=16, kernel_size=2, stride=2), (2, 16, 12, 16, 16)),
    ),
}
