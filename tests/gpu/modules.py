"""Every kernel, linked without a GPU: over formats, activations, options and what devices can do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tests.gpu.halved_dispatches import halved_dispatches
from tests.gpu_graph.test_fake_quant import rounding, schemes
from tests.graph.op_cases import OP_CASES
from tests.graph.op_cases.case import case_graph
from volumetric import Coord, Grid, Network, initialise
from volumetric.devices.gpu.graph.encode_graph import rewrite_for_gpu
from volumetric.devices.gpu.kernels import (
    attention,
    elementwise,
    experts,
    gemm_tiles,
    matmul,
    matrix_stacks,
    pool_rows,
    recurrence,
    row_predicate,
    state_space,
    subgraph_moves,
    token_draw,
)
from volumetric.devices.gpu.kernels.attention import AttentionShape
from volumetric.devices.gpu.kernels.dispatch import Caps, Dispatch
from volumetric.devices.gpu.kernels.dispatch import WorkgroupGrid as Groups
from volumetric.devices.gpu.kernels.gemm_tiles import TILES
from volumetric.devices.gpu.kernels.genomes import GenomeShape, genomes
from volumetric.devices.gpu.kernels.graph.formulas import MOST
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweringRequest, predicate_launch
from volumetric.devices.gpu.kernels.graph.kernel_table import lower
from volumetric.devices.gpu.kernels.graph.picked_rows import pick_rows
from volumetric.devices.gpu.kernels.matmul import ExpertSlots, MatmulShape, SequenceStates, SplitPartials
from volumetric.devices.gpu.kernels.state_space import ConvShape, ScanShape
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.shaders import LinkedShader, ShaderTarget, link
from volumetric.devices.gpu.shaders.dialects import MATRIX_UNITS, Dialect
from volumetric.graph import Graph, GraphBuilder, NumpyGraphs
from volumetric.graph.numeric.activations import ACTIVATIONS
from volumetric.graph.operations.elementwise import BINARY, UNARY
from volumetric.layers import Conv1d
from volumetric.train.data import Batch
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.learner import LearnerOptions
from volumetric.train.optim import SGD, AdamW, Momentum, Optimiser, RMSprop

LEAST = Caps()
"""What every WebGPU device has."""
DEVICES: Mapping[str, Caps] = {
    "least": LEAST,
    "software": Caps(subgroup_size=4, max_shared=32768, invocations=2048, unroll=2),
    "large": Caps(subgroup_size=32, immediates=True, max_workgroup=1024, max_shared=49152, max_storage_buffers=12),
}
UNITS = "matrix units"
_OF_UNITS = replace(DEVICES["large"], matrix_units=True)


@dataclass(frozen=True, slots=True)
class Module:
    """A dispatch for one of `DEVICES`, or for `UNITS`: one with an extension that few compilers have."""

    device: str
    dispatch: Dispatch

    def link(self, dialect: Dialect = "naga") -> LinkedShader:
        """Return its text."""
        caps, dispatch = _OF_UNITS if self.device == UNITS else DEVICES[self.device], self.dispatch
        target = ShaderTarget(subgroup_size=caps.subgroup_size, immediates=caps.immediates, dialect=dialect)
        return link(dispatch.kernel, constants=dispatch.constants, preludes=dispatch.preludes, target=target)


@cache
def modules() -> tuple[Module, ...]:
    """Every dispatch for every device."""
    found = {}
    for name, caps in DEVICES.items():
        for dispatch in (*fused_dispatches(caps), *graph_dispatches(caps)):
            found.setdefault((name, dispatch.key), Module(name, dispatch))
    return tuple(found.values())


@cache
def matrix_modules() -> tuple[Module, ...]:
    """Every dispatch that multiplies on matrix units."""
    units = (dispatch for dispatch in halved_dispatches(_OF_UNITS) if MATRIX_UNITS in dispatch.preludes)
    return tuple(Module(UNITS, dispatch) for dispatch in {dispatch.key: dispatch for dispatch in units}.values())


def covering(every: Sequence[Module]) -> list[Module]:
    """Choose few modules in which every kernel meets each of its preludes, and each constant in each way it can switch.

    Constants switch branches by being 0, 1 (or true), or more; reductions are linked with and without subgroups.
    """
    chosen, covered = [], set()
    for module in every:
        new = _choices(module) - covered
        if new:
            covered |= new
            chosen.append(module)
    return chosen


def _choices(module: Module) -> set[tuple[object, ...]]:
    dispatch = module.dispatch
    lanes = module.device == UNITS or DEVICES[module.device].subgroup_size > 0
    found: set[tuple[object, ...]] = {(dispatch.kernel, lanes)}
    found |= {(dispatch.kernel, prelude) for prelude in dispatch.preludes}
    return found | {(dispatch.kernel, name, min(float(value), 2.0)) for name, value in dispatch.constants.items()}


def fused_dispatches(caps: Caps) -> Iterator[Dispatch]:
    """Kernels of operations on rows."""
    yield Dispatch(kernel="probe_rounds", grid=Groups(x=1), constants={"ROUNDS": 9})
    if caps.subgroup_size:
        yield Dispatch(kernel="probe_subgroup", grid=Groups(x=1), constants={"WG": 128})
    yield from _products(caps)
    yield from halved_dispatches(caps)
    yield from _attention(caps)
    yield from _mixtures(caps)
    yield from _state_space()
    for layout in FORMATS.values():
        yield elementwise.embedding(width=40, layout=layout, scale=2.0, first=0, units=9)
        yield elementwise.position_embedding(width=40, layout=layout, offset=2, limit=9)
    for name in UNARY:
        yield elementwise.unary(width=7, name=name, alpha=2.0, beta=1.0)
    for name in BINARY:
        yield elementwise.binary(width=9, name=name)
    for kind, flag in itertools.product(("rms", "layer"), (False, True)):
        yield elementwise.norm(
            width=5, groups=2, kind=kind, eps=1e-5, unit_offset=not flag, weight=flag, bias=flag and kind == "layer"
        )
        yield gemm_tiles.row_stats(MatmulShape(k=9, n=3, format=FORMATS["float32"], norm=kind))
        yield elementwise.argmax(width=9, final=flag)
    for draw in (
        token_draw.adjust,
        token_draw.restore,
        token_draw.bins,
        token_draw.top_p,
        token_draw.top_k,
        token_draw.sums,
        token_draw.token,
    ):
        yield draw(9)
    for name in ACTIVATIONS:
        yield elementwise.gated_activation(width=7, activation=name)
    yield elementwise.softmax(width=9)
    yield elementwise.copy_pages(96)
    yield subgraph_moves.move_rows(96)
    yield subgraph_moves.move_places(9)
    for flag in (False, True):
        yield subgraph_moves.move_state(9, back=flag)
    yield elementwise.keep_largest(width=9, count=2)
    for pooling in pool_rows.POOLINGS:
        yield pool_rows.pool_rows(width=9, pooling=pooling, at=3, stride=6, skipped=1, context=64)
    for first in (0, elementwise.MIXED):
        yield elementwise.mix(width=9, branches=6, first=first, count=2)
    yield elementwise.mix(width=9, branches=2, first=0, count=2, weighted=False)
    for name in ("rnn_tanh", "rnn_relu", "lstm", "gru"):
        yield recurrence.cell(name, hidden=9, step=1)
    yield elementwise.concat(width=3, at=2, out_width=9)
    shape = GenomeShape(genomes=3, samples=5, inputs=2, outputs=1, slots=7, shared=True)
    yield genomes(shape, caps)


def _products(caps: Caps) -> Iterator[Dispatch]:
    partials = SplitPartials(splits=3, heads=4, head_dim=24)
    for layout in FORMATS.values():
        plain = MatmulShape(k=96, n=20, format=layout, norm="rms", norm_weight=True, residual=True, softcap=9.0)
        gated = MatmulShape(k=50, n=12, format=layout, activation="silu", gated=True, norm="layer", bias=True)
        large = MatmulShape(k=9000, n=4096, format=layout, norm="layer", norm_weight=True, norm_bias=True)
        yield matmul.matvec(replace(plain, norm=None), caps, first=0, units=20, source=partials)
        for shape, int8 in itertools.product((plain, gated, large), (False, True)):
            yield matmul.matvec(replace(shape, int8=int8), caps, first=0, units=shape.n)
            for rows in (2, 16):
                cut = matmul.tune_batch(shape, shape.n, caps, rows)
                yield matmul.matvec(replace(shape, int8=int8), caps, first=0, units=shape.n, tuning=cut)
        for shape, rows in itertools.product((plain, gated, large), (2, 64, 4096)):
            yield gemm_tiles.gemm(shape, caps, gemm_tiles.choose_tile(shape, rows, caps), first=0, units=shape.n)
        for name in ACTIVATIONS:
            shape = replace(plain, activation=name)
            yield matmul.matvec(shape, caps, first=0, units=20)
            yield gemm_tiles.gemm(shape, caps, gemm_tiles.choose_tile(shape, 64, caps), first=0, units=20)
    shape = MatmulShape(k=96, n=20, format=FORMATS["float16"])
    state, column = SequenceStates(ring=recurrence.RING, step=2), row_predicate.column(3, 1)
    for rows in (1, 4):
        cut = matmul.tune_batch(shape, 20, caps, rows)
        yield matmul.matvec(shape, caps, first=0, units=20, tuning=cut, guard=column)
        for guard in (row_predicate.NONE, row_predicate.STEPS):
            yield matmul.matvec(shape, caps, first=0, units=20, tuning=cut, source=state, guard=guard)
    if caps.max_storage_buffers >= row_predicate.MOST_BUFFERS:
        yield gemm_tiles.gemm(shape, caps, TILES[-1], first=0, units=20, guard=column)
    for tile in TILES:
        if tile.workgroup <= caps.max_workgroup and tile.shared + 2048 <= caps.max_shared:
            yield gemm_tiles.gemm(shape, caps, tile, first=0, units=20)


def _mixtures(caps: Caps) -> Iterator[Dispatch]:
    """Products with stacks of experts' matrices, by pairs and in the order of experts, and what is around them."""
    for scoring, count in itertools.product(experts.SCORINGS, (5, 200)):
        yield experts.choose_experts(count=count, keep=4, scoring=scoring)
    routes = experts.ExpertRoutes(experts=5, slots=2, pairs=40, each=(4, TILES[-1].m))
    yield from (routes.group(), *(routes.collect(width=20, residual=flag) for flag in (False, True)))
    for layout, flag in itertools.product(FORMATS.values(), (False, True)):
        first = MatmulShape(k=96, n=20, format=layout, gated=flag, norm="rms", bias=flag, int8=flag)
        weighted = replace(first, weighted=True)
        yield matmul.matvec(weighted, caps, first=0, units=20, stack=matrix_stacks.pair_stack(2))
        over = ExpertSlots.over(layout, 2, 20)
        last = MatmulShape(k=over, n=12, format=layout, bias=flag, residual=flag, weighted=True, int8=flag)
        yield matmul.matvec(
            last, caps, first=0, units=12, source=ExpertSlots(count=2, width=20), stack=matrix_stacks.branch_stack(2)
        )
        cut = matmul.tune_batch(first, 100, caps, 4)
        yield matmul.matvec(first, caps, first=0, units=20, tuning=cut, stack=routes.stack(0))
        yield gemm_tiles.gemm(
            replace(weighted, norm="layer"), caps, TILES[-1], first=0, units=20, stack=routes.stack(1)
        )


def _state_space() -> Iterator[Dispatch]:
    """Convolutions and scans of Mamba (a rate for each element, a gate) and of Mamba-2 (one for each head, bounded)."""
    widths = {"x": 24, "dt": 24, "b": 7, "c": 7, "z": 24}
    for rows in (1, 20):
        for activation in ("linear", "silu"):
            conv = ConvShape(channels=20, taps=4, width=44, start=3, activation=activation)
            yield state_space.causal_conv(conv, rows=rows)
        for each in (False, True):
            starts = dict.fromkeys(widths if each else ("x", "dt", "b", "c"), 0)
            scan = ScanShape(
                heads=24 if each else 3,
                head_dim=1 if each else 8,
                groups=1,
                size=7,
                widths=widths,
                starts=starts,
                each=each,
                skip_at=40,
                bias_at=None if each else 80,
                dt_factor=1.0,
                z_factor=1.0,
                dt_min=0.0,
                dt_max=None if each else 0.1,
            )
            yield state_space.selective_scan(scan, rows=rows)


def _attention(caps: Caps) -> Iterator[Dispatch]:
    flags = itertools.product((False, True), repeat=3)
    for head_dim, (half, norm, turned) in itertools.product((20, 32, 64, 128, 256), flags):
        shape = AttentionShape(
            heads=8,
            kv_heads=2,
            head_dim=head_dim,
            context=4096,
            scale=0.2,
            rotary=8 * turned,
            qk_norm="rms" if norm else None,
            half=half,
        )
        yield attention.append(shape)
        yield attention.rows(shape, caps)
        for count in (1, 64):
            yield attention.split(shape, caps, count)
            yield attention.combine(shape, caps, count)
    shape = AttentionShape(
        heads=6, kv_heads=2, head_dim=20, context=33, scale=0.2, rotary=8, softcap=3.0, window=7, sinks=True, chunk=9,
        qk_norm="layer", own_gains=True,
    )  # fmt: skip
    yield from (attention.rows(shape, caps), attention.split(shape, caps))
    yield attention.rows(replace(shape, causal=False, state=False), caps)
    yield attention.append(replace(shape, causal=False, state=False))


def graph_dispatches(caps: Caps) -> Iterator[Dispatch]:
    """Kernels of tensor graphs: of every operation in the cases that devices are tested with, and of whole networks."""
    graphs = [case_graph(case) for case in OP_CASES.values()]
    graphs += [rounding(scheme) for scheme in schemes()]
    graphs += [_training(optimiser) for optimiser in _OPTIMISERS]
    graphs += [_long_product(), _known_rows(), *_large_formulas()]
    yield pick_rows(99)
    trial = LoweringRequest(
        op="update",
        inputs=((9,), (9,), (9,), (5,)),
        outputs=((9,), (9,)),
        attrs={**Momentum().attributes, "in_place": False},
        read_outputs=(True, False),
        caps=caps,
    )
    yield from (launch.dispatch for launch in lower(trial).launches)
    for graph in graphs:
        for request in _requests(rewrite_for_gpu(graph, caps), caps):
            yield from (launch.dispatch for launch in lower(request).launches)
    for request in _requests(rewrite_for_gpu(_long_product(), caps), caps):
        yield from (predicate_launch(launch, 0, 8).dispatch for launch in lower(request).launches)


def _long_product() -> Graph:
    work = GraphBuilder()
    return work.finish([work.gemm(work.input("a", (1, 8, 99999)), work.input("b", (1, 99999, 8)))])


def _large_formulas() -> Iterator[Graph]:
    """Formulas that are written as code, and their reductions."""
    for axes in ((0,), (1,), (0, 1)):
        work = GraphBuilder()
        y = work.unary_grad(work.input("g", (2, MOST)), work.affine(work.input("x", (2, MOST)), 2.0, 1.0), "silu")
        scaled = work.binary("mul", y, work.input("a", (2, 1)))
        yield work.finish([scaled, *(work.reduce(work.unary(y, "exp"), name, axes) for name in ("mean", "max"))])


def _known_rows() -> Graph:
    work = GraphBuilder()
    ids = work.constant(np.array([2, 0, 2], np.int32), "ids")
    return work.finish([work.scatter_rows(work.input("g", (3, 5)), ids, 4)])


_OPTIMISERS = (SGD(), Momentum(momentum=0.9), RMSprop(momentum=0.9, centered=True), AdamW())


def _training(optimiser: Optimiser) -> Graph:
    """A step of a network with a convolution, whose windows are read where they lie, and clipping."""
    convolution = Conv1d(in_channels=2, out_channels=3, kernel_size=3, padding=1)
    network = Network(grid=Grid(1), layers={Coord(0): convolution}, input_shape=(2, 5), input_dtype="float32")
    seen: list[Graph] = []

    class Lowering(NumpyGraphs):
        def compile(self, graph: Graph, store: Any) -> Any:
            seen.append(graph)
            return super().compile(graph, store)

    learner = DeviceLearner(
        network, initialise(network), LearnerOptions(optimiser=optimiser, clip=1.0), Lowering(np.float32)
    )
    learner.step([Batch(np.ones((4, 2, 5), np.float32), np.ones((4, 3, 5), np.float32))], rate=0.1)
    return seen[0]


def _requests(graph: Graph, caps: Caps) -> Iterator[LoweringRequest]:
    for node in graph.nodes:
        if node.op != "reshape":
            yield LoweringRequest(
                op=node.op,
                inputs=tuple(graph.tensors[i].shape for i in node.inputs),
                outputs=tuple(graph.tensors[i].shape for i in node.outputs),
                attrs=node.attrs,
                integers=tuple(graph.tensors[i].dtype == "int32" for i in node.inputs),
                caps=caps,
            )
