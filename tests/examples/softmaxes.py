"""Softmaxes and their kin: distributions over an axis of logits."""

from __future__ import annotations

import volumetric.layers as nn
from tests.examples.entry import Examples
from tests.learning.tasks import learn


def _mask(width: int) -> tuple[bool, ...]:
    return tuple(i % 3 != 1 for i in range(width))


SOFTMAXES: dict[str, Examples] = {
    "softmax": Examples(
        cases={
            "softmax": (nn.Softmax(temperature=0.7), (3, 5)),
            "softmax-channels": (nn.Softmax(axis=1), (2, 3, 2, 2)),
        },
        sized=lambda r, a, b: (nn.Softmax(temperature=0.7), (r, b)),
        task=learn(rate=5.0),
        bench=(nn.Softmax(), (4096, 1024)),
    ),
    "masked_softmax": Examples(
        cases={
            "masked-softmax": (nn.MaskedSoftmax(mask=(True, False, True, True, False), temperature=2.0), (3, 5)),
            "masked-softmax-axis": (nn.MaskedSoftmax(mask=(False, True, True), axis=-2), (2, 3, 4)),
            "masked-softmax-nothing": (nn.MaskedSoftmax(mask=(False, False)), (3, 2)),
        },
        sized=lambda r, a, b: (nn.MaskedSoftmax(mask=_mask(b)), (r, b)),
        bench=(nn.MaskedSoftmax(mask=tuple(i % 4 != 3 for i in range(1024))), (4096, 1024)),
    ),
    "gumbel_softmax": Examples(
        cases={
            "gumbel-softmax": (nn.GumbelSoftmax(seed=5, temperature=0.8), (4, 5)),
            "gumbel-softmax-batch": (nn.GumbelSoftmax(seed=6, axis=1), (2, 3, 4)),
        },
        sized=lambda r, a, b: (nn.GumbelSoftmax(seed=7), (r, b)),
        task=learn(nn.Dense(in_features=4, out_features=5), nn.GumbelSoftmax(seed=5), row=(4,), rows=5, rate=8.0),
        bench=(nn.GumbelSoftmax(temperature=0.7), (4096, 1024)),
    ),
    "sparsemax": Examples(
        cases={
            "sparsemax": (nn.Sparsemax(), (4, 5)),
            "sparsemax-axis": (nn.Sparsemax(temperature=0.5, axis=1), (2, 4, 3)),
        },
        sized=lambda r, a, b: (nn.Sparsemax(), (r, b)),
        bench=(4096, 1, 1024),
    ),
    "entmax": Examples(
        cases={
            "entmax": (nn.Entmax(), (4, 5)),
            "entmax-soft": (nn.Entmax(alpha=1.2, temperature=0.9), (2, 3, 4)),
            "entmax-sparse": (nn.Entmax(alpha=2.0, axis=-2), (2, 3, 4)),
        },
        sized=lambda r, a, b: (nn.Entmax(alpha=1.3), (r, b)),
        task=learn(rate=3.0),
        bench=(nn.Entmax(alpha=1.5), (4096, 1024)),
    ),
    "grid_softmax": Examples(
        cases={
            "grid-softmax": (nn.GridSoftmax(rows=2, cols=3), (3, 6)),
            "grid-softmax-axis": (nn.GridSoftmax(rows=2, cols=2, axis=1, temperature=2.0), (2, 4, 3)),
        },
        sized=lambda r, a, b: (nn.GridSoftmax(rows=a, cols=b), (r, a * b)),
        task=learn(rate=5.0),
        bench=(4096, 16, 64),
    ),
    "hierarchical_softmax": Examples(
        cases={
            "hierarchical-softmax": (nn.HierarchicalSoftmax(levels=(2, 3, 2)), (2, 20)),
            "hierarchical-softmax-axis": (nn.HierarchicalSoftmax(levels=(2, 2), axis=1), (2, 6, 3)),
        },
        sized=lambda r, a, b: (nn.HierarchicalSoftmax(levels=(a, b)), (r, a + a * b)),
        task=learn(rate=20.0),
        bench=(4096, 32, 32),
    ),
    "adaptive_softmax": Examples(
        cases={
            "adaptive-softmax": (nn.AdaptiveSoftmax(n_classes=9, cutoffs=(2, 5)), (3, 11)),
            "adaptive-softmax-axis": (nn.AdaptiveSoftmax(n_classes=4, cutoffs=(1,), axis=-2), (2, 5, 2)),
        },
        sized=lambda r, a, b: (nn.AdaptiveSoftmax(n_classes=a + b, cutoffs=(a,)), (r, a + 1 + b)),
        task=learn(rate=10.0),
        bench=(nn.AdaptiveSoftmax(n_classes=1022, cutoffs=(254, 510)), (4096, 1024)),
    ),
    "mixture_softmax": Examples(
        cases={
            "mixture-softmax": (nn.MixtureSoftmax(components=3), (3, 15)),
            "mixture-softmax-axis": (nn.MixtureSoftmax(components=2, axis=1), (2, 6, 2)),
        },
        sized=lambda r, a, b: (nn.MixtureSoftmax(components=a), (r, a + a * b)),
        task=learn(rate=10.0),
        bench=(nn.MixtureSoftmax(components=4), (4096, 1028)),
    ),
}
