"""The pre-norm decoder of Llama-like language models."""

from __future__ import annotations

from volumetric.base.call_errors import explain_call_errors
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import Dense, Embedding, LayerSpec, MultiHeadAttention, Residual, RMSNorm, Rope, SwiGLU
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid, Link


@explain_call_errors
def transformer(
    vocabulary: int,
    *,
    width: int = 64,
    blocks: int = 2,
    heads: int = 4,
    kv_heads: int | None = None,
    hidden: int | None = None,
    activation: Activation = "silu",
    causal: bool = True,
    rope_base: float = 10000.0,
    tied: bool = True,
) -> Network:
    """Return token embedding, `blocks` blocks (norm, attention, sum, norm, gated block, sum), norm and head.

    A block is one plane of the grid with six slots. Positions are encoded by RoPE, so the network has no maximal
    length.

    Parameters
    ----------
    vocabulary : number of tokens
    width : features of a token, a multiple of `heads` with an even quotient
    heads, kv_heads : query heads, and key/value heads (None: as many as query heads)
    hidden : width of the gated block (None: 4 · width · 2/3 up to a multiple of 8, as Llama's)
    causal : whether a token attends only to itself and earlier tokens
    tied : whether the head shares the weights of the embedding

    Raises
    ------
    SpecError
        `width` is not divisible by `heads`, or a head has an odd width.
    """
    inner = hidden or -(-8 * width // 24) * 8
    rope = Rope(dim=width // heads, base=rope_base)
    layers: dict[Coord, LayerSpec] = {Coord(0): Embedding(num_embeddings=vocabulary, embedding_dim=width)}
    before = Coord(0)
    for z in range(1, blocks + 1):
        slots = (
            RMSNorm(num_features=width),
            MultiHeadAttention(embed_dim=width, num_heads=heads, num_kv_heads=kv_heads, rope=rope, causal=causal),
            Residual(source=str(before)),
            RMSNorm(num_features=width),
            SwiGLU(in_features=width, hidden_features=inner, activation=activation),
            Residual(source=str(Coord(z, slot=2))),
        )
        layers |= {Coord(z, slot=slot): spec for slot, spec in enumerate(slots)}
        before = Coord(z, slot=5)
    end = blocks + 1
    head = Coord(end, slot=1)
    layers[Coord(end)] = RMSNorm(num_features=width)
    layers[head] = Dense(in_features=width, out_features=vocabulary, bias=False)
    links = (Link(kind="shared", source=Coord(0), target=head),) if tied else ()
    return Network(grid=Grid(blocks + 2, slots=6), layers=layers, links=links)
