"""Graphs of fixed shape as recordings: each node becomes launches over named buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.buffer_names import BufferNames, TensorBuffers
from volumetric.devices.gpu.command_list import RecordedDispatch
from volumetric.devices.gpu.graph.formula_fusion import fuse_formulas, moves_as_views
from volumetric.devices.gpu.graph.joined_groups import join_groups
from volumetric.devices.gpu.graph.joined_sums import join_sums
from volumetric.devices.gpu.graph.joined_updates import join_updates
from volumetric.devices.gpu.graph.read_fusion import fuse_folds, fuse_joins, fuse_parts, fuse_windows
from volumetric.devices.gpu.graph.row_sums import list_sums
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    predicate_launch,
)
from volumetric.devices.gpu.kernels.graph.kernel_table import GUARDED, has_kernel, lower
from volumetric.graph.cleanup_passes import fuse_activations, fuse_trials, join_pads, whole_of_parts
from volumetric.graph.ops import Graph, Node
from volumetric.graph.unroll_scans import unroll_scans, write_out

_PASSES = (
    list_sums,
    fuse_activations,
    moves_as_views,
    fuse_windows,
    fuse_folds,
    join_pads,
    whole_of_parts,
    join_groups,
    join_sums,
    fuse_parts,
    fuse_joins,
    fuse_trials,
    fuse_formulas,
    join_updates,
)


def rewrite_for_gpu(graph: Graph, caps: Caps) -> Graph:
    """Return a graph of fixed shape after all GPU rewrites."""
    graph = unroll_scans(graph)
    shapes = [tensor.shape for tensor in graph.tensors]
    graph = write_out(graph, lambda node: has_kernel(node.op, [shapes[i] for i in node.inputs], node.attrs, caps))
    for rewritten in _PASSES:
        graph = rewritten(graph)
    return graph


def record_graph(
    graph: Graph, buffers: Mapping[int, str], slots: BufferNames, caps: Caps
) -> tuple[list[RecordedDispatch], TensorBuffers]:
    """Record a `rewrite_for_gpu` graph.

    Parameters
    ----------
    buffers : buffer of each input, constant and tensor with a key
    slots : allocates all other buffers

    Returns
    -------
    The dispatches, and the buffer of each tensor

    Raises
    ------
    UnsupportedError : no kernel for a node
    DeviceError : a tensor exceeds a binding
    """
    names = TensorBuffers(graph, buffers, slots, lambda tensor: 4 * tensor.size)
    entries: list[RecordedDispatch] = []
    for at, node in enumerate(graph.nodes):
        if node.op == "reshape":
            continue
        names.begin(at)
        lowered = _lower(graph, node, names, caps)
        spare = [slots.acquire(nbytes, "scratch of a node") for nbytes in lowered.scratch]
        places = {
            "input": [names[i] for i in node.inputs],
            "output": [names[i] for i in node.outputs],
            "scratch": spare,
            "guard": [] if node.predicate is None else [names[node.predicate.tensor]],
        }

        def buffer_of(ref: BufferRef, places: dict[str, list[str]] = places) -> str:
            return places[ref.place][ref.number]

        entries += [
            RecordedDispatch(
                dispatch=launch.dispatch,
                buffers={local: buffer_of(ref) for local, ref in launch.buffers.items()},
                dims=launch.dims,
            )
            for launch in _predicated_launches(graph, node, lowered)
            if launch.unless_same is None or buffer_of(launch.unless_same[0]) != buffer_of(launch.unless_same[1])
        ]
        for name in spare:
            slots.release(name)
        names.end(at)
    return entries, names


def _predicated_launches(graph: Graph, node: Node, lowered: LoweredNode) -> Sequence[KernelLaunch]:
    """Launches of a node, which end at once if nothing reads their results."""
    predicate = node.predicate
    if predicate is None or predicate.zeros or node.op not in GUARDED or graph.tensors[predicate.tensor].shape[0] != 1:
        return lowered.launches
    size = graph.tensors[node.outputs[0]].size // predicate.parts
    return [predicate_launch(launch, predicate.column, size) for launch in lowered.launches]


def _lower(graph: Graph, node: Node, names: TensorBuffers, caps: Caps) -> LoweredNode:
    tensors = graph.tensors
    request = LoweringRequest(
        op=node.op,
        inputs=tuple(tensors[i].shape for i in node.inputs),
        outputs=tuple(tensors[i].shape for i in node.outputs),
        attrs=node.attrs,
        integers=tuple(tensors[i].dtype == "int32" for i in node.inputs),
        read_outputs=tuple(names.is_read(i) for i in node.outputs),
        caps=caps,
        products=graph.products,
    )
    try:
        return lower(request)
    except UnsupportedError as error:
        where = f" (in {node.where})" if node.where else ""
        raise UnsupportedError(f"{error}{where}", hint=error.hint) from error
