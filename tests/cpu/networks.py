"""Small networks with random parameters, as a device sees them."""

from __future__ import annotations

import numpy as np

from tests.networks import tiny_llama
from volumetric.dtypes import Scheme, encode
from volumetric.layers import (
    MLP,
    Dense,
    Embedding,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    Parallel,
    PositionEmbedding,
    Residual,
    RMSNorm,
    Rope,
    Sequential,
    Softcap,
    Softmax,
    SwiGLU,
)
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower

IDS = np.array([5, 17, 2, 61, 33, 33, 0, 96, 12, 7, 88, 41, 3, 3, 19, 50, 71, 28, 9, 64, 1], np.int32)


def random_params(plan, rng, scheme="float32", size=0.25):
    stores = {}
    for key, shape in plan.params.items():
        if len(shape) == 1:
            stores[key] = WeightStore.from_array((1 + 0.3 * rng.standard_normal(shape)).astype(np.float32))
        else:
            values = (size * rng.standard_normal(shape)).astype(np.float32)
            stores[key] = WeightStore.from_packed(encode(values, Scheme.parse(scheme)))
    return Params(stores)


def chain(*layers: LayerSpec) -> Network:
    return Network(grid=Grid(len(layers)), layers={Coord(z): spec for z, spec in enumerate(layers)})


def outputs(device, network, params, x, *, last_only=False, pieces=None, **options):
    """Outputs for the rows of `x`, fed in pieces of the given lengths."""
    executable = device.compile(lower(network), params, RunOptions(context=1024, **options))
    state, found, start = executable.new_state(), [], 0
    for length in pieces or [len(x)]:
        found.append(executable.forward(state, x[start : start + length], last_only=last_only))
        start += length
    assert state.position == len(x)
    return np.concatenate(found)


def assert_close(got, want, tolerance=1e-5):
    assert got.shape == want.shape
    worst = np.abs(got - want).max() / np.abs(want).max()
    assert worst < tolerance, f"{worst:.1e}"


def gpt() -> Network:
    """Learned positions, layer norms with biases, plain MLP: the GPT-2 shape, sides that are no multiple of 16."""
    width = 36
    return Network(
        grid=Grid(8),
        layers={
            Coord(0): Embedding(num_embeddings=97, embedding_dim=width, scale=1.5),
            Coord(1): PositionEmbedding(num_embeddings=50, embedding_dim=width, offset=2),
            Coord(2): LayerNorm(num_features=width),
            Coord(3): MultiHeadAttention(embed_dim=width, num_heads=3, qkv_bias=True, out_bias=True),
            Coord(4): Residual(source="1.0.0.0"),
            Coord(5): LayerNorm(num_features=width),
            Coord(6): MLP(in_features=width, hidden_features=70, activation="gelu_tanh"),
            Coord(7): Residual(source="4.0.0.0"),
        },
    )


def gemma() -> Network:
    """Soft caps, a window, normalised heads, gains around 1, wide heads."""
    return chain(
        Embedding(num_embeddings=97, embedding_dim=40, scale=6.0),
        RMSNorm(num_features=40, unit_offset=True),
        MultiHeadAttention(
            embed_dim=40,
            num_heads=4,
            num_kv_heads=1,
            head_dim=24,
            rope=Rope(dim=16),
            window=5,
            softcap=3.0,
            qk_norm=True,
            qk_norm_unit_offset=True,
        ),
        RMSNorm(num_features=40),
        SwiGLU(in_features=40, hidden_features=33, activation="gelu_tanh", bias=True),
        Dense(in_features=40, out_features=97, bias=False),
        Softcap(cap=5.0),
    )


def sinks() -> Network:
    """Sinks, chunks, heads with norms of their own, bounded gates."""
    return chain(
        Embedding(num_embeddings=97, embedding_dim=40),
        MultiHeadAttention(
            embed_dim=40,
            num_heads=4,
            num_kv_heads=2,
            rope=Rope(dim=10),
            chunk=6,
            sinks=True,
            qk_norm=True,
            qk_norm_kind="layer",
            qk_norm_over="each",
        ),
        RMSNorm(num_features=40),
        SwiGLU(in_features=40, hidden_features=33, activation="quick_gelu", bias=True, limit=0.5, up_offset=1.0),
        Dense(in_features=40, out_features=97, bias=False),
    )


def encoder() -> Network:
    """Attention in both directions, without a state."""
    return chain(
        Embedding(num_embeddings=97, embedding_dim=20),
        MultiHeadAttention(embed_dim=20, num_heads=2, causal=False, out_bias=True),
        LayerNorm(num_features=20),
        MLP(in_features=20, hidden_features=50, activation="gelu"),
    )


def joins() -> Network:
    """Branches that are added, averaged and put side by side, and element-wise ends."""
    return chain(
        Embedding(num_embeddings=97, embedding_dim=20),
        Parallel(
            branches=(
                Dense(in_features=20, out_features=30, activation="silu"),
                Sequential(layers=(RMSNorm(num_features=20), Dense(in_features=20, out_features=30))),
                Dense(in_features=20, out_features=30, activation="leaky_relu"),
            ),
            combine="avg",
        ),
        Parallel(
            branches=(
                Dense(in_features=30, out_features=17, activation="relu2"),
                Dense(in_features=30, out_features=8, activation="sigmoid"),
            ),
            combine="concat",
        ),
        Softmax(temperature=0.7),
    )


NETWORKS = {"llama": tiny_llama, "gpt": gpt, "gemma": gemma, "sinks": sinks, "encoder": encoder, "joins": joins}
