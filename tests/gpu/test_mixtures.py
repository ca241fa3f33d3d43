"""Mixtures of experts on the GPU: small kernels against NumPy, and products of branches that nobody chose left out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.harness import Kernel, aligned, assert_close
from tests.pieces import run_all
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.kernels import elementwise, gemm_tiles, matmul, row_predicate
from volumetric.devices.gpu.kernels.matmul import MatmulShape
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.graph.numeric.keep_largest import keep_largest
from volumetric.layers import Dense, Gate, Parallel, RMSNorm, SwiGLU
from volumetric.layers.gate import SCORINGS, Scoring
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows

WIDTH = 22


@pytest.mark.parametrize(("width", "count"), [(1, 1), (8, 2), (131, 7)])
def test_keep_largest(kernel: Kernel, rng: np.random.Generator, width: int, count: int) -> None:
    x = rng.integers(-2, 3, (5, width)).astype(np.float32)  # many are equal, and some are -0
    x[1] *= np.where(rng.random(width) < 0.5, -1, 1)
    x[2, ::2], x[3] = np.nan, -np.inf
    x[4, -1] = np.inf
    y = kernel.empty(5, -(-width // 4) * 4)
    kernel.run((elementwise.keep_largest(width=width, count=count), {"x": kernel.array(aligned(x)), "y": y}), rows=5)
    np.testing.assert_array_equal(kernel.read(y, 5, width), keep_largest(x, count))


@pytest.mark.parametrize("branches", [1, 4, 9])
def test_mix(kernel: Kernel, rng: np.random.Generator, branches: int) -> None:
    weights = rng.random((3, branches)).astype(np.float32) * (rng.random((3, branches)) < 0.5)
    values = rng.standard_normal((branches, 3, 7)).astype(np.float32)
    values[weights.T == 0] = np.nan
    y = kernel.empty(3, 8)
    shared = {"weights": kernel.array(aligned(weights)), "y": y, "ctl": kernel.control(rows=3)}
    for first in range(0, branches, elementwise.MIXED):
        part = values[first : first + elementwise.MIXED]
        names = {f"branch_{i}": kernel.array(aligned(branch)) for i, branch in enumerate(part)}
        dispatch = elementwise.mix(width=7, branches=branches, first=first, count=len(part))
        kernel.run((dispatch, {**shared, **names}), rows=3)
    shares = weights.T[:, :, None]
    expected = np.where(shares == 0, 0, shares * values).sum(0)
    assert_close(kernel.read(y, 3, 7), expected)


@pytest.mark.parametrize("many", [False, True])
def test_a_guarded_product_ends_before_it_reads_weights(kernel: Kernel, rng: np.random.Generator, many: bool) -> None:
    """Workgroups of rows that chose another branch leave what is in the result as it was."""
    shape = MatmulShape(k=12, n=8, format=FORMATS["float32"])
    x, w = rng.standard_normal((40, 12)).astype(np.float32), rng.standard_normal((8, 12)).astype(np.float32)
    gate = np.zeros((40, 3), np.float32)
    gate[20, 1], gate[39, 1] = 0.5, np.nan  # NaN is a weight as well
    gate[:, 2] = 1
    weights, held = kernel.weights(w, "float32")
    y = kernel.empty(40, 8)
    buffers = {"x": kernel.array(aligned(x)), **weights, "y": y, "gate": kernel.array(aligned(gate))}
    tile = gemm_tiles.TILES[-1]
    if many:
        each = tile.m
        dispatch = gemm_tiles.gemm(shape, kernel.caps, tile, first=0, units=8, guard=row_predicate.column(3, 1))
    else:
        cut = matmul.tune_batch(shape, 8, kernel.caps, 4)
        each = cut.batch
        dispatch = matmul.matvec(shape, kernel.caps, first=0, units=8, tuning=cut, guard=row_predicate.column(3, 1))
    kernel.run((dispatch, buffers | {"ctl": kernel.control(rows=40)}), rows=40)
    got = kernel.read(y, 40, 8)
    wanted = np.isin(np.arange(40) // each, [20 // each, 39 // each])
    assert np.isnan(got[~wanted]).all()
    assert_close(got[wanted], x[wanted].astype(np.float64) @ held.T)


def mixture(scoring: Scoring = "softmax") -> Network:
    expert = SwiGLU(in_features=WIDTH, hidden_features=30)
    plain = Dense(in_features=WIDTH, out_features=WIDTH)
    gate = Gate(in_features=WIDTH, out_features=5, top_k=2, scoring=scoring)
    return Network(
        grid=Grid(3),
        input_shape=(WIDTH,),
        input_dtype="float32",
        layers={
            Coord(0): RMSNorm(num_features=WIDTH),
            Coord(1): Parallel(gate=gate, branches=(*(expert,) * 4, plain), combine="filter"),
            Coord(2): Dense(in_features=WIDTH, out_features=9),
        },
    )


@pytest.mark.thorough
def test_a_mixture_runs_on_packed_weights(fallback_device: GpuDevice, rng: np.random.Generator) -> None:
    network = mixture()
    params = initialise(network, 3)
    plan = lower(network)
    executable = fallback_device.compile(plan, params, RunOptions(context=128))
    assert isinstance(executable, GpuExecutable)
    assert {node.predicate[1] for node in executable.graph.nodes if node.predicate} == set(range(5))
    reference = ReferenceDevice().compile(plan, params, RunOptions(context=128))
    for rows in (1, 20):
        x = rng.standard_normal((rows, WIDTH)).astype(np.float32)
        pieces = [(device, device.new_state()) for device in (executable, reference)]
        got, want = (run_all(device, [SequenceRows(state, x, "all")])[0] for device, state in pieces)
        assert_close(got, want)


@pytest.mark.thorough
@pytest.mark.parametrize("scoring", SCORINGS)
def test_weights_of_branches_that_nobody_chose_do_not_matter(scoring: Scoring, native_device: GpuDevice) -> None:
    """A gate that always takes the first two of five: the others may hold NaN."""
    network = mixture(scoring)
    params = initialise(network, 3)
    values = {key: np.array(params[key].values()) for key in params}
    values["1.0.0.0/gate/weight"][:] = np.array([2, 1, 0, 0, 0])[:, None]
    x = np.abs(np.random.default_rng(0).standard_normal((3, WIDTH))).astype(np.float32)
    unchosen = tuple(f"1.0.0.0/{i}/" for i in (2, 3, 4))
    found = []
    for number in (1.0, np.nan):
        spoilt = {k: v * number if k.startswith(unchosen) else v for k, v in values.items()}
        made = Params({k: WeightStore.from_array(v) for k, v in spoilt.items()})
        executable = native_device.compile(lower(network), made, RunOptions(context=16))
        found.append(executable.run([SequenceRows(executable.new_state(), x, "all")])[0])
    assert np.isfinite(found[0]).all()
    np.testing.assert_array_equal(*found)
