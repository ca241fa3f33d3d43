"""Grids with a random layer in every slot."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from volumetric.base import rng
from volumetric.base.errors import SpecError
from volumetric.layers import (
    GRU,
    LSTM,
    MLP,
    RNN,
    Dense,
    KMeans,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    Parallel,
    RMSNorm,
    Sequential,
    Softmax,
    SwiGLU,
)
from volumetric.layers.containers import Residual
from volumetric.network import Network
from volumetric.network.grid import Grid


def _heads(width: int) -> int:
    return next(heads for heads in (4, 3, 2, 1) if width % heads == 0)


MAKERS: Final = MappingProxyType[str, Callable[[int], LayerSpec]](
    {
        "dense": lambda n: Dense(in_features=n, out_features=n, activation="relu"),
        "multi_head_attention": lambda n: MultiHeadAttention(embed_dim=n, num_heads=_heads(n)),
        "swiglu": lambda n: SwiGLU(in_features=n, hidden_features=2 * n),
        "mlp": lambda n: MLP(in_features=n, hidden_features=2 * n),
        "rms_norm": lambda n: RMSNorm(num_features=n),
        "layer_norm": lambda n: LayerNorm(num_features=n),
        "rnn": lambda n: RNN(input_size=n, hidden_size=n),
        "lstm": lambda n: LSTM(input_size=n, hidden_size=n),
        "gru": lambda n: GRU(input_size=n, hidden_size=n),
        "softmax": lambda n: Softmax(),
        "kmeans": lambda n: KMeans(num_clusters=n, in_features=n),
        "sequential": lambda n: Sequential(layers=(RMSNorm(num_features=n), _square(n), Residual(source="input"))),
        "parallel": lambda n: Parallel(branches=(_square(n), _square(n)), combine="avg"),
    }
)
"""Kind → function that returns a layer of this kind that keeps the width of rows."""


def _square(width: int) -> Dense:
    return Dense(in_features=width, out_features=width, activation="tanh")


def random_grid(
    width: int,
    *,
    depth: int = 2,
    rows: int = 2,
    cols: int = 2,
    slots: int = 1,
    kinds: tuple[str, ...] = tuple(MAKERS),
    seed: int = 0,
) -> Network:
    """Return a grid with a layer of a random kind in every slot; every layer keeps the width of rows.

    Parameters
    ----------
    width : features of a row, in input, layers and output
    depth, rows, cols, slots : sizes of the grid
    kinds : layers to draw from, all equally likely
    seed : the same seed draws the same network everywhere

    Raises
    ------
    SpecError
        A kind cannot be drawn, or a side is below 1.
    """
    unknown = [kind for kind in kinds if kind not in MAKERS]
    if unknown or not kinds:
        raise SpecError(f"random_grid cannot draw {unknown or 'from no kinds'}", hint="of " + ", ".join(MAKERS))
    grid = Grid(depth, rows, cols, slots)
    drawn = rng.generator(seed).integers(len(kinds), size=len(grid))
    layers = {coord: MAKERS[kinds[at]](width) for coord, at in zip(grid, drawn.tolist(), strict=True)}
    return Network(grid=grid, layers=layers, input_shape=(width,), input_dtype="float32")
