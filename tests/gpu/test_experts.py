"""Mixtures of experts as one operation on the GPU: the choice, rows by expert, and products with stacks of matrices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import narrowed
from tests.gpu.harness import Kernel, aligned, assert_close
from tests.pieces import run_all
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.kernels import experts as kernels
from volumetric.devices.gpu.kernels.experts import ExpertRoutes
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.graph.operations.experts import SCORINGS, weights_of
from volumetric.layers import MLP, Dense, Gate, Parallel, Residual, RMSNorm, SwiGLU
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import WeightStore
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows

WIDTH, EXPERTS = 22, 5


@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize(("count", "keep"), [(5, 2), (131, 7)])
def test_choose(kernel: Kernel, rng: np.random.Generator, scoring: str, count: int, keep: int) -> None:
    x = rng.integers(-2, 3, (6, count)).astype(np.float32)  # many are equal, and some are -0
    x[1] *= np.where(rng.random(count) < 0.5, -1, 1)
    x[2, 1], x[3], x[4, ::2] = np.nan, -np.inf, -np.inf
    x[5, 3] = np.nan if scoring in ("given", "largest") else np.inf
    keep = count if scoring == "given" else keep
    chosen = kernel.empty(6, 2 * keep)
    dispatch = kernels.choose_experts(count=count, keep=keep, scoring=scoring)
    kernel.run((dispatch, {"choice": kernel.array(aligned(x)), "chosen": chosen}), rows=6)
    words = kernel.context.read(chosen, 6 * 8 * keep).view(np.uint32).reshape(6, keep, 2)
    numbers, found = words[..., 0].astype(int), np.ascontiguousarray(words[..., 1]).view(np.float32)
    wanted = weights_of(x, scoring, keep)
    for row in range(6):
        if np.isnan(wanted[row]).any():  # one NaN makes a row of the sum NaN, whatever the other weights are
            assert np.isnan(found[row]).all()
            continue
        used = np.flatnonzero(wanted[row])
        np.testing.assert_array_equal(numbers[row, : len(used)], used)
        np.testing.assert_allclose(found[row, : len(used)], wanted[row, used], rtol=2e-6)
        assert not found[row, len(used) :].any()
        if len(used):
            assert (numbers[row, len(used) :] == used[0]).all()


def test_rows_come_in_the_order_of_their_experts(native_kernel: Kernel, rng: np.random.Generator) -> None:
    rows, slots, most = 90, 3, 100
    numbers = rng.integers(0, EXPERTS - 1, (rows, slots))  # nobody takes the last one
    weights = (rng.random((rows, slots)) < 0.8) * rng.random((rows, slots))
    weights = weights.astype(np.float32)
    chosen = np.stack([numbers, weights.view(np.uint32)], -1).astype(np.uint32)
    routes = ExpertRoutes(experts=EXPERTS, slots=slots, pairs=most * slots, each=(16, 3))
    *starts, words = routes.starts()
    assert 4 * words <= ExpertRoutes.most_bytes(EXPERTS, routes.pairs)
    made = native_kernel.array(np.full(words, 0xDEADBEEF, np.uint32))
    buffers = {"chosen": native_kernel.array(chosen), "routes": made, "ctl": native_kernel.control(rows=rows)}
    native_kernel.run((routes.group(), buffers), rows=rows)
    got = native_kernel.context.read(made, 4 * words).view(np.uint32)
    pairs = np.flatnonzero(weights.reshape(-1))
    order = pairs[np.argsort(numbers.reshape(-1)[pairs], kind="stable")]
    np.testing.assert_array_equal(got[: len(order)], order // slots)
    np.testing.assert_array_equal(got[routes.pairs :][: len(order)], weights.reshape(-1)[order].view(np.uint32))
    place = np.full(rows * slots, 0xFFFFFFFF, np.uint32)
    place[order] = np.arange(len(order))
    np.testing.assert_array_equal(got[2 * routes.pairs :][: rows * slots], place)
    for start, each in zip(starts, routes.each, strict=True):
        count = -(-rows * slots // each) + EXPERTS
        seen = np.zeros(len(order), int)
        for first, end, expert, _ in got[start : start + 4 * count].reshape(count, 4).astype(int):
            assert end - first <= each
            seen[first:end] += 1
            assert (numbers.reshape(-1)[order[first:end]] == expert).all()
        assert (seen == 1).all()


def network_of(expert: SwiGLU | MLP, gate: Gate) -> Network:
    layers = (
        Dense(in_features=WIDTH, out_features=WIDTH),
        RMSNorm(num_features=WIDTH),
        Parallel(gate=gate, branches=(expert,) * gate.out_features, combine="filter"),
        Residual(source="0.0.0.0"),
    )
    return Network(
        grid=Grid(4),
        input_shape=(WIDTH,),
        input_dtype="float32",
        layers={Coord(z): spec for z, spec in enumerate(layers)},
    )


GATED = network_of(
    SwiGLU(in_features=WIDTH, hidden_features=30), Gate(in_features=WIDTH, out_features=EXPERTS, top_k=2)
)
BIASED = network_of(
    MLP(in_features=WIDTH, hidden_features=35, activation="gelu_tanh"),
    Gate(in_features=WIDTH, out_features=9, top_k=3, bias=True, scoring="sigmoid"),
)


OPTIONS = RunOptions(context=48)


def compiled(device: GpuDevice, network: Network, params: Params) -> GpuExecutable:
    executable = device.compile(lower(network), params, OPTIONS)
    assert isinstance(executable, GpuExecutable)
    assert [node.op for node in executable.graph.nodes][-1] == "experts"
    return executable


def agree(executable: GpuExecutable, network: Network, params: Params, rows: int) -> None:
    """Compare with the layers' own code, and a run with the next one, which has the same bits."""
    reference = ReferenceDevice().compile(lower(network), params, OPTIONS)
    x = np.random.default_rng(rows).standard_normal((rows, WIDTH)).astype(np.float32)
    runs = (executable, executable, reference)
    found, again, wanted = (run_all(each, [SequenceRows(each.new_state(), x, "all")])[0] for each in runs)
    assert_close(found, wanted)
    np.testing.assert_array_equal(found, again)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("network", "dtype", "device", "rows"),
    [(GATED, "float32", "native", (1, 3, 40)), (BIASED, "int4:g32", "no subgroups, no immediates", (3, 5, 40))],
    ids=["gated", "biased"],
)
def test_a_mixture_agrees_with_its_layers(network: Network, dtype: str, device: str, rows: tuple[int, ...]) -> None:
    """One row, a few, and so many that they are brought together by expert, in batches and in tiles."""
    params = initialise(network, 3)
    network.morph(params, dtype, keep_masters=False)
    executable = compiled(narrowed(device), network, params)
    for count in rows:
        agree(executable, network, params, count)


@pytest.mark.thorough
def test_matrices_beyond_a_binding_are_cut() -> None:
    """Each shard has the same outputs of all experts."""
    params = initialise(GATED, 3)
    executable = compiled(GpuDevice(narrow={"max_binding": 16384}), GATED, params)
    keys = tuple(f"2.0.0.0/{i}/{part}.weight" for i in range(EXPERTS) for part in ("gate", "up"))
    assert [shard.units for shard in executable.weights.matrix(keys, abreast=True).shards] == [16, 14]
    agree(executable, GATED, params, 40)


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [1, 40])
def test_weights_of_experts_that_nobody_chose_do_not_matter(native_device: GpuDevice, rows: int) -> None:
    """A gate that always takes the first two of five: the others may hold NaN."""
    values = {key: np.array(store.values()) for key, store in initialise(GATED, 3).items()}
    values["1.0.0.0/weight"][:] = 1
    values["2.0.0.0/gate/weight"][:] = np.array([2, 1, 0, 0, 0])[:, None]
    values["0.0.0.0/weight"][:], values["0.0.0.0/bias"][:] = np.eye(WIDTH), 0
    x = np.abs(np.random.default_rng(0).standard_normal((rows, WIDTH))).astype(np.float32)
    unchosen = tuple(f"2.0.0.0/{i}/" for i in (2, 3, 4))
    found = []
    for number in (1.0, np.nan):
        spoilt = {k: v * number if k.startswith(unchosen) else v for k, v in values.items()}
        executable = compiled(native_device, GATED, Params({k: WeightStore.from_array(v) for k, v in spoilt.items()}))
        found.append(executable.run([SequenceRows(executable.new_state(), x, "all")])[0])
    assert np.isfinite(found[0]).all()
    np.testing.assert_array_equal(*found)
