"""The networks of the training benchmark: eight batches an epoch, random targets, plain gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from volumetric.base import rng
from volumetric.base._typing import F32Array, Shape
from volumetric.builders import chain
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import Conv1d, Conv2d, Conv3d, Dense, LayerSpec, Reshape, RMSNorm
from volumetric.network import Network

BATCHES: Final = 8
RATE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase:
    """A network, the samples of a batch, and the shape of one."""

    name: str
    network: Network
    batch: int

    @property
    def shape(self) -> Shape:
        """Shape of one sample."""
        return self.network.input_shape

    def data(self) -> tuple[F32Array, F32Array]:
        """Return inputs and targets, uniform in ±1."""
        draw = rng.generator(42)
        samples = BATCHES * self.batch
        x = draw.uniform(-1, 1, (samples, *self.shape)).astype(np.float32)
        return x, draw.uniform(-1, 1, (samples, 8)).astype(np.float32)


def _dense(into: int, out: int, activation: Activation = "relu") -> Dense:
    return Dense(in_features=into, out_features=out, bias=False, activation=activation)


def _conv(kind: type[Conv1d] | type[Conv2d] | type[Conv3d], into: int, out: int) -> LayerSpec:
    return kind(in_channels=into, out_channels=out, kernel_size=3, padding=1, bias=False, activation="relu")


def _case(name: str, batch: int, shape: Shape, *layers: LayerSpec) -> TrainingCase:
    return TrainingCase(name=name, network=chain(layers, shape), batch=batch)


_FLAT: Final = Reshape(shape=(-1,))
_END: Final = _dense(512, 8, "linear")
_LIST: Final = (
    _case("dense", 64, (128,), _dense(128, 512), _dense(512, 512), _END),
    _case("cnn1d", 32, (3, 128), _conv(Conv1d, 3, 32), _conv(Conv1d, 32, 64), _FLAT, _dense(8192, 8, "linear")),
    _case("cnn2d", 16, (3, 32, 32), _conv(Conv2d, 3, 16), _conv(Conv2d, 16, 32), _FLAT, _dense(32768, 8, "linear")),
    _case("cnn3d", 8, (2, 8, 8, 8), _conv(Conv3d, 2, 8), _FLAT, _dense(4096, 8, "linear")),
    _case(
        "rms_norm", 64, (128,), _dense(128, 512, "linear"), RMSNorm(num_features=512, eps=1e-6), _dense(512, 512), _END
    ),
    _case("deep", 64, (128,), _dense(128, 512), *(_dense(512, 512) for _ in range(3)), _END),
)
CASES: Final = MappingProxyType({case.name: case for case in _LIST})
"""Name → case."""
