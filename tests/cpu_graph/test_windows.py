"""Convolutions that are cut into pieces give the numbers of whole ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from tests.examples import CASES
from tests.parity.run import data
from volumetric.devices.cpu.graph.convolution_by_samples import split_by_samples
from volumetric.devices.cpu.graph.convolution_by_windows import split_by_windows
from volumetric.graph import Graph, GraphBuilder, differentiate
from volumetric.layers import Conv1d, Conv2d, LayerSpec
from volumetric.layers.emit_scope import Scope

LARGE: dict[str, tuple[LayerSpec, tuple[int, ...]]] = {
    "rows of 70": (
        Conv2d(in_channels=3, out_channels=5, kernel_size=3, stride=(3, 1), padding=2, groups=1),
        (2, 3, 17, 68),
    ),
    "groups, dilated": (
        Conv2d(in_channels=4, out_channels=6, kernel_size=(2, 3), padding=(1, 2), dilation=(3, 2), groups=2),
        (3, 4, 13, 65),
    ),
    "one axis": (Conv1d(in_channels=2, out_channels=3, kernel_size=5, stride=2, padding=3), (2, 2, 331)),
}
CONVOLUTIONS = {name: case for name, case in {**CASES, **LARGE}.items() if case[0].kind.startswith("conv")}


def forward(spec: LayerSpec, shape: tuple[int, ...], *, train: bool) -> Graph:
    work = GraphBuilder()
    x = work.stored_tensor("x", shape)
    weights = {p.name: work.stored_tensor(p.name, p.shape) for p in spec.params()}
    y = Scope(work=work, param=lambda path, _: weights[path], path="layer").emit(spec, x)
    grads = differentiate(work, {y: work.stored_tensor("gy", work.shape(y))}, [x, *weights.values()]) if train else {}
    return work.finish([y, *grads.values()])


@pytest.mark.thorough
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_pieces_give_the_numbers_of_the_whole(name: str, threads: int) -> None:
    spec, shape = CONVOLUTIONS[name]
    of, device = data((spec, shape), seed=3), graphs(threads)
    for train in (False, True):
        graph = forward(spec, shape, train=train)
        results = []
        for one in (graph, split_by_windows(graph, nbytes=1), split_by_samples(graph, nbytes=1, whole=1)):
            store = device.store()
            for key, value in {**of.params, "x": of.x, "gy": of.gy}.items():
                store.write(key, value)
            results.append(device.compile(one, store).run([]))
        for whole, *cut in zip(*results, strict=True):
            for pieces in cut:
                np.testing.assert_allclose(pieces, whole, rtol=0, atol=1e-6 * max(1.0, float(np.abs(whole).max())))


def test_large_convolutions_are_cut_and_gradients_are_not() -> None:
    spec, shape = LARGE["rows of 70"]
    ops = [node.op for node in split_by_windows(forward(spec, shape, train=False), nbytes=1).nodes]
    assert ops.count("unfold") == ops.count("gemm") == 7
    assert ops.count("concat") == 1
    train = forward(spec, shape, train=True)
    assert split_by_windows(train, nbytes=1).nodes == train.nodes  # the gradient reads the columns again
    small = forward(*CASES["conv2d"], train=False)
    assert split_by_windows(small).nodes == small.nodes


def test_no_columns_of_a_large_batch_are_kept_whole() -> None:
    spec, shape = LARGE["groups, dilated"]
    graph = forward(spec, shape, train=True)
    assert max(graph.tensors[node.outputs[0]].shape[0] for node in graph.nodes if node.op == "unfold") == shape[0]
    cut = split_by_samples(graph, nbytes=1, whole=1)
    made = [node for node in cut.nodes if node.op in ("unfold", "fold")]
    assert [node.op for node in made].count("unfold") == 2 * shape[0]  # for the output, and again for the gradient
    assert [node.op for node in made].count("fold") == shape[0]
    assert all(cut.tensors[i].shape[0] == 1 for node in made for i in (*node.inputs, *node.outputs))
    assert split_by_samples(graph).nodes == graph.nodes  # small


def test_columns_that_others_read_stay_whole() -> None:
    work = GraphBuilder()
    x, w = work.stored_tensor("x", (3, 2, 9)), work.stored_tensor("w", (1, 4, 6))
    columns = work.unfold(x, kernel=(3,), stride=(1,), dilation=(1,), before=(1,), counts=(9,))
    graph = work.finish([work.gemm(w, columns, groups=3), columns])
    assert split_by_samples(graph, nbytes=1, whole=1).nodes == graph.nodes
