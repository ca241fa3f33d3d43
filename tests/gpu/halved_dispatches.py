"""Kernels that multiply halves on matrix units, or on emulated ones, and what comes before and after them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from volumetric.devices.gpu.kernels import attention, experts, matrix_attention, matrix_tiles, row_predicate
from volumetric.devices.gpu.kernels.attention import AttentionShape
from volumetric.devices.gpu.kernels.dispatch import Caps, Dispatch
from volumetric.devices.gpu.kernels.graph import matrix_gemm
from volumetric.devices.gpu.kernels.graph.grouped_gemm import product_of
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweringRequest
from volumetric.devices.gpu.kernels.matmul import MatmulShape
from volumetric.devices.gpu.kernels.weight_formats import FORMATS


def halved_dispatches(caps: Caps) -> Iterator[Dispatch]:
    """Yield every kernel of halves."""
    yield from _products(caps)
    yield from _graph_products(caps)
    yield from _attention(caps)


def _products(caps: Caps) -> Iterator[Dispatch]:
    """Products of halves, with what comes before and after them; in a mixture, for idle rows, and in every tile."""
    routes = experts.ExpertRoutes(experts=5, slots=2, pairs=40, each=(16, 32))
    for layout in FORMATS.values():
        if not matrix_tiles.takes(layout):
            continue
        plain = MatmulShape(k=96, n=20, format=layout, norm="rms", norm_weight=True, residual=True, softcap=9.0)
        gated = MatmulShape(k=50, n=12, format=layout, activation="silu", gated=True, norm="layer", bias=True)
        for shape, rows in itertools.product((plain, gated), (16, 64, 4096)):
            cut = matrix_tiles.choose_cut(shape, rows, caps)
            yield matrix_tiles.halve_rows(shape)
            yield matrix_tiles.matrix_gemm(shape, caps, cut, first=0, units=shape.n, rows=rows)
            for part in (0, 1):
                own = replace(shape, residual=False, softcap=None, weighted=part == 1)
                yield matrix_tiles.matrix_gemm(own, caps, cut, first=0, units=shape.n, stack=routes.stack(part))
    shape = MatmulShape(k=900, n=64, format=FORMATS["float16"], norm="layer", norm_bias=True)
    tried = {cut.tile for rows in matrix_tiles.TUNED_ROWS for cut in matrix_tiles.candidates(shape, rows, caps)}
    for tile in sorted(tried, key=repr) if caps.matrix_units else (matrix_tiles.EMULATED_TILE,):
        for splits in (1, 2):
            cut = matrix_tiles.MatrixCut(tile=tile, splits=splits)
            yield matrix_tiles.matrix_gemm(shape, caps, cut, first=0, units=64, rows=64)
            for gate in (shape, replace(shape, gated=True, bias=True, residual=True, activation="silu")):
                yield matrix_tiles.join_splits(gate, cut, first=0, units=64, rows=64)
        if caps.max_storage_buffers >= row_predicate.MOST_BUFFERS:
            guard = row_predicate.column(3, 1)
            yield matrix_tiles.matrix_gemm(shape, caps, cut, first=0, units=64, rows=64, guard=guard)
    yield matrix_tiles.halve_rows(replace(shape, norm=None, norm_bias=False))
    yield matrix_tiles.halve_rows(replace(shape, norm="layer", norm_weight=True), keep=True)
    yield matrix_tiles.halve_rows(replace(shape, k=9000, norm="rms", norm_weight=True, norm_unit_offset=True))


def _graph_products(caps: Caps) -> Iterator[Dispatch]:
    """Products of graphs of halves, with each way in which a side lies, in every tile."""
    tiles = matrix_tiles.TILES if caps.matrix_units else (matrix_gemm.EMULATED_TILE,)
    windows = dict.fromkeys(("kernel", "stride", "dilation", "before", "counts", "sizes"), (2, 3))
    for trans_a, trans_b, columns in itertools.product((False, True), (False, True), ("", "fours", "odd")):
        m, n, k = (36, 40, 48) if columns == "fours" else (37, 39, 45)
        a, b = ((2, k, m) if trans_a else (2, m, k)), ((2, n, k) if trans_b else (2, k, n))
        attrs = {"trans_a": trans_a, "trans_b": trans_b, "groups": 2, "activation": "silu"}
        attrs |= {} if columns else {"windows": windows, "columns": b}
        inputs = (a, b, (n,))
        request = LoweringRequest(
            op="gemm",
            inputs=inputs,
            outputs=((2, m, n),),
            attrs=attrs,
            caps=caps,
            products="float16" if columns else "scaled float16",
        )
        for tile in tiles:
            if matrix_gemm.staged(tile, request):
                lowered = matrix_gemm.lower_matrix_product(product_of(request), tile, 1, request)
                yield from (launch.dispatch for launch in lowered.launches)


def _attention(caps: Caps) -> Iterator[Dispatch]:
    """Attention of prompts as products of halves: each width of heads and way to mask, and queries of odd sizes."""
    plain = AttentionShape(heads=8, kv_heads=2, head_dim=64, context=4096, scale=0.2, rotary=16, half=True)
    masked = replace(plain, head_dim=20, rotary=8, softcap=3.0, window=7, sinks=True, chunk=9, half=False)
    shapes = [replace(plain, head_dim=head_dim) for head_dim in (64, 80, 128, 256)]
    shapes += [masked, replace(masked, causal=False, state=False), replace(plain, kv_heads=8)]
    shapes += [replace(plain, qk_norm=norm, own_gains=norm == "layer") for norm in ("rms", "layer")]
    for shape in shapes:
        yield attention.append(shape, halves=True)
        tiles = matrix_attention.choose_tiles([shape], caps)
        if tiles:
            yield matrix_attention.rows(shape, caps, tiles[shape])
