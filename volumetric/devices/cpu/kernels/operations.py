"""The row operations, by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from volumetric.devices.cpu.kernels import (
    argmax,
    attention,
    products,
    ragged,
    rope_kv_append,
    rounded_attention,
    row_operations,
)
from volumetric.devices.cpu.kernels.jit import KernelLibrary


def _of(module: str, name: str, *, plain: bool = True) -> Callable[..., Callable[..., None]]:
    """Return a factory of an operation that few networks need; it imports the module on first use."""

    def make(*constants: str | int) -> Callable[..., None]:
        function = getattr(import_module(f"volumetric.devices.cpu.kernels.{module}"), name)
        return function if plain else function(*constants)

    return make


ROWS = KernelLibrary(
    f"{__name__}:ROWS",
    {
        "angles": rope_kv_append.angles,
        "norm": row_operations.norm,
        "add": row_operations.add,
        "concat": row_operations.concat,
        "prepare": products.prepare,
        "likeliest": argmax.argmax_share,
        "feed": argmax.feed_tokens,
        "each_piece": ragged.each_sequence,
        "gather": row_operations.gather,
    },
    {
        "append": rope_kv_append.append,
        "embedding": row_operations.embedding,
        "position_embedding": row_operations.position_embedding,
        "attend": attention.attend,
        "attend_few": attention.attend_few,
        "attend_rounded": rounded_attention.attend_bfloat16,
        "open_cache": rounded_attention.unpack_cache,
        "vector_product": products.vector_product,
        "rows_product": products.rows_product,
        "tile_product": products.tile_product,
        "matrix_product": _of("amx.matrix_product", "matrix_product", plain=False),
        "recall": _of("row_cells", "load_states"),
        "retain": _of("row_cells", "store_states"),
        "cell": _of("row_cells", "cell", plain=False),
        "keep_largest": _of("gates", "keep_largest"),
        "mix": _of("gates", "mix_branches"),
        "softmax": _of("softmax", "softmax"),
        "unary": _of("elements", "unary", plain=False),
        "binary": _of("elements", "binary", plain=False),
        "gated": _of("gates", "gate_elements", plain=False),
        "route": _of("mixtures.expert_routes", "route_rows"),
        "spread": _of("mixtures.expert_routes", "spread_to_experts"),
        "unite": _of("mixtures.expert_routes", "sum_experts"),
        "each_expert": _of("mixtures.each_expert", "each_expert"),
        "columns": _of("scans.causal_conv_kernel", "columns"),
        "grouped_norm": _of("scans.grouped_norm", "grouped_norm"),
        "causal_conv": _of("scans.causal_conv_kernel", "causal_conv", plain=False),
        "selective_scan": _of("scans.selective_scan_kernel", "selective_scan", plain=False),
    },
)
