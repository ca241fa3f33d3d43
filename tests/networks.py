"""Small networks that several test areas share."""

from __future__ import annotations

from volumetric.layers import (
    Dense,
    Embedding,
    LayerSpec,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    Rope,
    SwiGLU,
)
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid, Link


def tiny_llama(
    *, vocabulary: int = 97, width: int = 32, blocks: int = 2, heads: int = 4, kv_heads: int = 2, head_dim: int = 8
) -> Network:
    """A pre-norm decoder with a tied head; small, and no side is a multiple of a kernel's tile by accident."""
    layers: dict[Coord, LayerSpec] = {Coord(0): Embedding(num_embeddings=vocabulary, embedding_dim=width)}
    before = Coord(0)
    for z in range(1, blocks + 1):
        block: list[LayerSpec] = [
            RMSNorm(num_features=width),
            MultiHeadAttention(
                embed_dim=width, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, rope=Rope(dim=head_dim)
            ),
            Residual(source=str(before)),
            RMSNorm(num_features=width),
            SwiGLU(in_features=width, hidden_features=3 * width - 5),
            Residual(source=str(Coord(z, slot=2))),
        ]
        layers |= {Coord(z, slot=slot): spec for slot, spec in enumerate(block)}
        before = Coord(z, slot=5)
    end = blocks + 1
    layers[Coord(end)] = RMSNorm(num_features=width)
    layers[Coord(end, slot=1)] = Dense(in_features=width, out_features=vocabulary, bias=False)
    tied = Link(kind="shared", source=Coord(0), target=Coord(end, slot=1))
    return Network(grid=Grid(blocks + 2, slots=6), layers=layers, links=(tied,))
