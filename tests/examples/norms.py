"""Norms of channels, dropout, and what flattens or cuts samples."""

from __future__ import annotations

import volumetric.layers as nn
from tests.examples.entry import Examples
from tests.learning.tasks import learn

NORMS: dict[str, Examples] = {
    "group_norm": Examples(
        cases={
            "group-norm": (nn.GroupNorm(num_groups=2, num_channels=6), (2, 6, 3, 2)),
            "group-norm-relu": (nn.GroupNorm(num_groups=2, num_channels=2, activation="silu"), (2, 2, 5)),
            "group-norm-plain": (nn.GroupNorm(num_groups=3, num_channels=3, affine=False), (2, 3, 5)),
            "group-norm-rows": (nn.GroupNorm(num_groups=1, num_channels=4), (3, 4)),
        },
        sized=lambda r, a, b: (nn.GroupNorm(num_groups=a, num_channels=2 * a), (r, 2 * a, b)),
        bench=(nn.GroupNorm(num_groups=8, num_channels=64), (8, 64, 32, 32)),
    ),
    "batch_norm1d": Examples(
        cases={
            "batch-norm1d": (nn.BatchNorm1d(num_features=3), (5, 3)),
            "batch-norm1d-mean": (nn.BatchNorm1d(num_features=2, momentum=None, activation="tanh"), (3, 2, 4)),
        },
        sized=lambda r, a, b: (nn.BatchNorm1d(num_features=a), (r, a, b) if a % 2 else (r, a)),
        bench=(nn.BatchNorm1d(num_features=64), (16, 64, 1024)),
    ),
    "batch_norm2d": Examples(
        cases={
            "batch-norm2d": (nn.BatchNorm2d(num_features=3, eps=1e-3, momentum=0.3), (2, 3, 2, 3)),
            "batch-norm2d-plain": (nn.BatchNorm2d(num_features=2, affine=False), (3, 2, 2, 2)),
            "batch-norm2d-untracked": (nn.BatchNorm2d(num_features=2, track_running_stats=False), (2, 2, 2, 3)),
        },
        sized=lambda r, a, b: (
            nn.BatchNorm2d(num_features=a % 6 + 1, activation="relu"),
            (r, a % 6 + 1, b % 9 + 1, a % 7 + 1),
        ),
        bench=(nn.BatchNorm2d(num_features=64), (8, 64, 32, 32)),
    ),
    "batch_norm3d": Examples(
        cases={"batch-norm3d": (nn.BatchNorm3d(num_features=2), (2, 2, 2, 1, 3))},
        sized=lambda r, a, b: (
            nn.BatchNorm3d(num_features=a % 3 + 1, eps=1e-3),
            (r, a % 3 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
        ),
        bench=(nn.BatchNorm3d(num_features=16), (2, 16, 16, 24, 24)),
    ),
    "dropout": Examples(
        cases={"dropout": (nn.Dropout(p=0.4), (3, 5)), "dropout-images": (nn.Dropout(p=0.2), (2, 3, 2, 2))},
        sized=lambda r, a, b: (nn.Dropout(p=0.3), (r, a, b)),
        task=learn(nn.Dense(in_features=4, out_features=3), nn.Dropout(p=0.02), row=(4,)),
        bench=(nn.Dropout(p=0.5), (4096, 1024)),
    ),
    "flatten": Examples(
        cases={
            "flatten": (nn.Flatten(), (2, 3, 2, 2)),
            "flatten-some": (nn.Flatten(start_dim=-3, end_dim=2), (2, 3, 2, 2)),
        },
        sized=lambda r, a, b: (nn.Flatten(), (r, a, b)),
    ),
    "last_step": Examples(
        cases={"last-step": (nn.LastStep(), (3, 4, 2)), "last-step-images": (nn.LastStep(), (2, 1, 2, 3))},
        sized=lambda r, a, b: (nn.LastStep(), (r, a, b)),
        bench=(256, 64, 256),
    ),
}
