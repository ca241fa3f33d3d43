"""The row operations, by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from volumetric.devices.cpu.kernels import append, attention, likeliest, pieces, products, rounded_attention, rows
from volumetric.devices.cpu.kernels.jit import Library


def _of(module: str, name: str, *, plain: bool = True) -> Callable[..., Callable[..., None]]:
    """Return a factory of an operation that few networks need; it imports the module on first use."""

    def make(*constants: str | int) -> Callable[..., None]:
        function = getattr(import_module(f"volumetric.devices.cpu.kernels.{module}"), name)
        return function if plain else function(*constants)

    return make


ROWS = Library(
    f"{__name__}:ROWS",
    {
        "angles": append.angles,
        "norm": rows.norm,
        "add": rows.add,
        "concat": rows.concat,
        "prepare": products.prepare,
        "likeliest": likeliest.likeliest,
        "feed": likeliest.feed,
        "each_piece": pieces.each_piece,
        "gather": rows.gather,
    },
    {
        "append": append.append,
        "embedding": rows.embedding,
        "position_embedding": rows.position_embedding,
        "attend": attention.attend,
        "attend_few": attention.attend_few,
        "attend_rounded": rounded_attention.attend_rounded,
        "open_cache": rounded_attention.open_cache,
        "vector_product": products.vector_product,
        "rows_product": products.rows_product,
        "tile_product": products.tile_product,
        "matrix_product": _of("amx.product", "matrix_product", plain=False),
        "recall": _of("cells", "recall"),
        "retain": _of("cells", "retain"),
        "cell": _of("cells", "cell", plain=False),
        "keep_largest": _of("mixing", "keep_largest"),
        "mix": _of("mixing", "mix"),
        "softmax": _of("softmax", "softmax"),
        "unary": _of("elements", "unary", plain=False),
        "binary": _of("elements", "binary", plain=False),
        "gated": _of("mixing", "gated", plain=False),
        "route": _of("mixtures.routing", "route"),
        "spread": _of("mixtures.routing", "spread"),
        "unite": _of("mixtures.routing", "unite"),
        "each_expert": _of("mixtures.each", "each_expert"),
        "columns": _of("scans.conv", "columns"),
        "grouped_norm": _of("scans.norm", "grouped_norm"),
        "causal_conv": _of("scans.conv", "causal_conv", plain=False),
        "selective_scan": _of("scans.selective", "selective_scan", plain=False),
    },
)
