"""The operations on rows, by name."""

from __future__ import annotations

from volumetric.kernels.cpu import (
    append,
    attention,
    cells,
    likeliest,
    mixing,
    pieces,
    products,
    rounded_attention,
    rows,
)
from volumetric.kernels.cpu.jit import Library
from volumetric.kernels.cpu.mixtures import each, routing
from volumetric.kernels.cpu.scans import conv, norm, selective

ROWS = Library(
    {
        "angles": append.angles,
        "embedding": rows.embedding,
        "position_embedding": rows.position_embedding,
        "norm": rows.norm,
        "add": rows.add,
        "concat": rows.concat,
        "softcap": rows.softcap,
        "softmax": rows.softmax,
        "prepare": products.prepare,
        "recall": cells.recall,
        "retain": cells.retain,
        "keep_largest": mixing.keep_largest,
        "mix": mixing.mix,
        "route": routing.route,
        "spread": routing.spread,
        "unite": routing.unite,
        "each_expert": each.each_expert,
        "likeliest": likeliest.likeliest,
        "feed": likeliest.feed,
        "each_piece": pieces.each_piece,
        "gather": rows.gather,
        "columns": conv.columns,
        "grouped_norm": norm.grouped_norm,
    },
    {
        "append": append.append,
        "cell": cells.cell,
        "activate": mixing.activate_rows,
        "attend": attention.attend,
        "attend_few": attention.attend_few,
        "attend_rounded": rounded_attention.attend_rounded,
        "open_cache": rounded_attention.open_cache,
        "vector_product": products.vector_product,
        "rows_product": products.rows_product,
        "tile_product": products.tile_product,
        "causal_conv": conv.causal_conv,
        "selective_scan": selective.selective_scan,
    },
)
