"""Decoders of known shapes with random weights, for measurements without model files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.blocks import random_blocks
from volumetric.dtypes import Packed, Scheme
from volumetric.layers import Dense, Embedding, LayerSpec, MultiHeadAttention, Residual, RMSNorm, Rope, SwiGLU
from volumetric.network import Network, Params
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import WeightStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Shapes of a decoder."""

    width: int
    hidden: int
    blocks: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    def products(self) -> dict[str, tuple[int, int, bool]]:
        """Name → (outputs, inputs, gated) of the matrix products of a token."""
        qkv = self.width + 2 * self.kv_heads * self.head_dim
        return {
            "qkv": (qkv, self.width, False),
            "o": (self.width, self.width, False),
            "gate+up": (self.hidden, self.width, True),
            "down": (self.width, self.hidden, False),
            "head": (self.vocabulary, self.width, False),
        }


MODELS = {
    "tiny": Model(width=64, hidden=128, blocks=2, heads=4, kv_heads=2, vocabulary=256, tied=False),
    "25m": Model(width=512, hidden=1280, blocks=7, heads=8, kv_heads=8, vocabulary=4096, tied=False),
    "smollm2": Model(width=576, hidden=1536, blocks=30, heads=9, kv_heads=3, vocabulary=49152, tied=True),
    "tinyllama": Model(width=2048, hidden=5632, blocks=22, heads=32, kv_heads=4, vocabulary=32000, tied=False),
    "llama7b": Model(width=4096, hidden=11008, blocks=32, heads=32, kv_heads=32, vocabulary=32000, tied=False),
}


def network(model: Model) -> Network:
    layers: dict[Coord, LayerSpec] = {
        Coord(0): Embedding(num_embeddings=model.vocabulary, embedding_dim=model.width),
    }
    before = Coord(0)
    for z in range(1, model.blocks + 1):
        attention = MultiHeadAttention(
            embed_dim=model.width, num_heads=model.heads, num_kv_heads=model.kv_heads, rope=Rope(dim=model.head_dim)
        )
        block: list[LayerSpec] = [
            RMSNorm(num_features=model.width),
            attention,
            Residual(source=str(before)),
            RMSNorm(num_features=model.width),
            SwiGLU(in_features=model.width, hidden_features=model.hidden),
            Residual(source=str(Coord(z, slot=2))),
        ]
        layers |= {Coord(z, slot=slot): spec for slot, spec in enumerate(block)}
        before = Coord(z, slot=5)
    end = model.blocks + 1
    layers[Coord(end)] = RMSNorm(num_features=model.width)
    layers[Coord(end, slot=1)] = Dense(in_features=model.width, out_features=model.vocabulary, bias=False)
    return Network(grid=Grid(model.blocks + 2, slots=6), layers=layers)


def random_packed(shape: tuple[int, ...], scheme: Scheme) -> Packed:
    """A tensor whose values are small whatever its bits: made without going through floats, a 7B model in seconds."""
    rng = np.random.default_rng(shape[-1])
    rows, k = int(np.prod(shape[:-1])), shape[-1]
    if scheme.blocks is not None:
        few = random_blocks(str(scheme), (64, k), rng).payload
        return Packed(scheme=scheme, shape=shape, payload=np.ascontiguousarray(np.resize(few, (rows, few.shape[1]))))
    if scheme.dtype.is_float:
        return Packed.from_array((0.02 * rng.standard_normal(shape, np.float32)).astype(scheme.dtype.host))
    block = rng.integers(0, 2**32, (64, scheme.words_per_row(k)), np.uint32)
    scales = np.full((rows, scheme.groups_per_row(k)), 0.004, np.float16)
    payload = np.ascontiguousarray(np.resize(block, (rows, block.shape[1])))
    return Packed(
        scheme=scheme, shape=shape, payload=payload, scales=scales, offsets=None if scheme.symmetric else -8 * scales
    )


def params(plan_shapes: dict[str, tuple[int, ...]], scheme: Scheme) -> Params:
    """Stores that make their tensor when asked, one made tensor shared by all of the same shape."""
    made: dict[tuple[int, ...], Packed] = {}

    def source(shape: tuple[int, ...]) -> Callable[[], Packed]:
        def make() -> Packed:
            if shape not in made:
                made[shape] = random_packed(shape, scheme)
            return made[shape]

        return make

    stores = {}
    for key, shape in plan_shapes.items():
        if len(shape) == 1:
            stores[key] = WeightStore.from_array(np.ones(shape, np.float32))
        else:
            stores[key] = WeightStore(shape, scheme, source(shape))
    return Params(stores)
