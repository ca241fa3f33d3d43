"""The operations of graphs of fixed shape, by name."""

from __future__ import annotations

from volumetric.devices.cpu.kernels.graph.cross_attention import cross_attend
from volumetric.devices.cpu.kernels.graph.depthwise import depthwise_back, depthwise_conv
from volumetric.devices.cpu.kernels.graph.distance_attention import distance_attend
from volumetric.devices.cpu.kernels.graph.edge_attention import edge_attend, edge_attend_back, edge_attend_spread
from volumetric.devices.cpu.kernels.graph.elementwise import binary, unary, unary_grad
from volumetric.devices.cpu.kernels.graph.fused_cells import cell, cell_grad, cell_nodes
from volumetric.devices.cpu.kernels.graph.gemm import finish, gemm
from volumetric.devices.cpu.kernels.graph.gemm_nt import dots
from volumetric.devices.cpu.kernels.graph.gemv import strips
from volumetric.devices.cpu.kernels.graph.lookups import gather_rows, scatter_rows
from volumetric.devices.cpu.kernels.graph.losses import class_loss, element_loss, pair_sum
from volumetric.devices.cpu.kernels.graph.noise import dropout, gumbel, normal
from volumetric.devices.cpu.kernels.graph.norms import norm, norm_grad, norm_param_grad
from volumetric.devices.cpu.kernels.graph.pools import pool_max, pool_max_grad, pool_spread, pool_sum
from volumetric.devices.cpu.kernels.graph.recurrent_steps import recurrent_back, recurrent_pack, recurrent_step, rope
from volumetric.devices.cpu.kernels.graph.reduce import chunk_sums, reduce, squares
from volumetric.devices.cpu.kernels.graph.rounding import round_to_scheme
from volumetric.devices.cpu.kernels.graph.run_blocked import run_blocked
from volumetric.devices.cpu.kernels.graph.scans import linear_scan, rotate_scan
from volumetric.devices.cpu.kernels.graph.softmaxes import (
    entmax,
    entmax_grad,
    keep_largest,
    softmax,
    softmax_grad,
    sparsemax,
)
from volumetric.devices.cpu.kernels.graph.strided_copies import assign, copy, fill, transpose
from volumetric.devices.cpu.kernels.graph.updates import update
from volumetric.devices.cpu.kernels.graph.weighted_sums import weigh_rows
from volumetric.devices.cpu.kernels.graph.windows import fold, unfold
from volumetric.devices.cpu.kernels.jit import KernelLibrary

_PLAIN = (
    assign,
    run_blocked,
    chunk_sums,
    copy,
    distance_attend,
    dropout,
    edge_attend,
    edge_attend_back,
    edge_attend_spread,
    entmax,
    entmax_grad,
    fill,
    fold,
    gather_rows,
    gumbel,
    keep_largest,
    norm_param_grad,
    normal,
    pair_sum,
    pool_max,
    pool_max_grad,
    pool_spread,
    pool_sum,
    rope,
    scatter_rows,
    softmax,
    softmax_grad,
    sparsemax,
    squares,
    strips,
    transpose,
    unfold,
    weigh_rows,
)
_SPECIALISED = (
    binary,
    cell,
    cell_grad,
    cell_nodes,
    class_loss,
    cross_attend,
    depthwise_back,
    depthwise_conv,
    dots,
    element_loss,
    finish,
    gemm,
    linear_scan,
    rotate_scan,
    norm,
    norm_grad,
    recurrent_back,
    recurrent_pack,
    recurrent_step,
    reduce,
    round_to_scheme,
    unary,
    unary_grad,
    update,
)

SHAPES = KernelLibrary(f"{__name__}:SHAPES", {f.__name__: f for f in _PLAIN}, {f.__name__: f for f in _SPECIALISED})
