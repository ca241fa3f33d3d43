"""Every layer kind, role and numeric type on every device, against the layers' own code in float64."""

from __future__ import annotations

import pytest

from tests.devices import FAST, device, graphs
from tests.examples import CASES, EXAMPLES
from tests.oracles.network import NumpyNetwork
from tests.parity.run import agree, agree_one, data, expected, on_device
from tests.parity.table import ROLES, SIZES, cells, covered, met, sweep, swept, training, weighted, wide
from tests.tiers import alike
from tests.train.problems import chain
from volumetric.base.errors import UnsupportedError
from volumetric.devices.cpu.graph.build_steps import build_steps
from volumetric.dtypes import DTYPES, DType, Scheme
from volumetric.dtypes.scaled_rows import narrower_scheme
from volumetric.graph import GraphBuilder
from volumetric.layers import LAYERS, Dense, Sequential
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run import RunOptions, lower

SWEEP = sweep()
KIND = {case: spec.kind if case.startswith("case ") else case.rpartition("-")[0] for case, (spec, _) in SWEEP.items()}
alike(KIND)
CELLS = list(cells())
MET = [cell for cell in CELLS if met(*cell)]


def test_the_table_leaves_nothing_out() -> None:
    assert set(EXAMPLES) == set(LAYERS)
    assert sum(len(entry.cases) for entry in EXAMPLES.values()) == len(CASES)  # no name stands in two entries
    assert {kind for kind, _ in CELLS} == set(LAYERS)
    for kind in LAYERS:
        types = {dtype.name for of, dtype in CELLS if of == kind}
        assert types == ({dtype.name for dtype in DTYPES} if weighted(kind) else {"float32"})
    assert {dtype for _, dtype in MET} == set(DTYPES)
    assert {kind for kind, _ in MET} == set(LAYERS)
    assert set(ROLES) == {"forward", "vjp"}
    refused = {(kind, dtype.name, name) for name in FAST for kind, dtype in CELLS for role in ROLES
               if not covered(kind, role, dtype, name)}  # fmt: skip
    assert {name for _, _, name in refused} == {"gpu"}
    assert {dtype for _, dtype, _ in refused} == {dtype.name for dtype in DTYPES if wide(dtype)}
    rows, *widths = (set(of) for of in zip(*SIZES, strict=True))
    assert {1, 17, 31, 33} <= rows
    assert {1, 7, 13, 15, 16, 17, 31, 33, 63, 64, 65} <= set().union(*widths)


@pytest.mark.parametrize(("case", "name"), swept())
def test_shapes(case: str, name: str) -> None:
    example = SWEEP[case]
    of = data(example, seed=len(case))
    agree(on_device(name, example, of), expected(example, of), f"{case} on {name}")


@pytest.mark.each_of("dtype", "name")
@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize(("kind", "dtype"), MET, ids=lambda of: of if isinstance(of, str) else of.name)
def test_types_forward_and_backward(kind: str, dtype: DType, name: str) -> None:
    """Quantisation-aware: forward with what the type can hold, gradients straight through to the float32 master."""
    example = EXAMPLES[kind].sized(17, 7, 33)
    of, scheme = data(example, seed=3), Scheme.default(dtype)
    if not covered(kind, "vjp", dtype, name):
        with pytest.raises(UnsupportedError, match=dtype.name):
            on_device(name, example, of, scheme)
        return
    agree(on_device(name, example, of, scheme), expected(example, of, scheme), f"{kind} {dtype} on {name}")


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda of: of.name)
def test_training_rounds_as_the_table_says(dtype: DType) -> None:
    """By kernels alone, or with a step on the host between; or not at all."""
    work = GraphBuilder()
    graph = work.finish([work.fake_quant(work.input("x", (3, 64)), str(Scheme.default(dtype)))])
    assert training(dtype, "cpu") == ("codec" if any(step.host for step in build_steps(graph).steps) else "native")
    assert training(dtype, "gpu") == ("none" if wide(dtype) else "native")
    if wide(dtype):
        with pytest.raises(UnsupportedError):
            graphs("gpu").compile(graph, graphs("gpu").store())
    else:
        graphs("gpu").compile(graph, graphs("gpu").store())


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.bits < 32], ids=lambda of: of.name)
def test_weights_are_kept_as_the_table_says(dtype: DType, name: str) -> None:
    """Native schemes take the bytes of their codes and scales, decoded ones those of float32."""
    network = chain(Dense(in_features=256, out_features=64, bias=False), inputs=256)
    scheme = Scheme.default(dtype)
    params = initialise(network)
    for store in params.values():
        store.morph(scheme)
    natives = type(device(name)).native_schemes
    held = narrower_scheme(scheme, natives) or scheme
    executable = device(name).compile(lower(network), params)
    bits = held.bits_per_weight((64, 256)) if str(held) in natives else 32
    assert executable.memory.weights == pytest.approx(256 * 64 * bits / 8)


@pytest.mark.each_of("dtype", "name")
@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize(("kind", "dtype"), MET, ids=lambda of: of if isinstance(of, str) else of.name)
def test_types_as_stored(kind: str, dtype: DType, name: str) -> None:
    """Inference with weights of the type, through the device's own choice of fused plan or graph."""
    spec, shape = EXAMPLES[kind].sized(17, 7, 33)
    network = Network(
        grid=Grid(1),
        layers={Coord(0): Sequential(layers=(spec,))},
        input_shape=shape[1:],
        input_dtype="int32" if kind == "embedding" else "float32",
    )
    of, scheme = data((spec, shape), seed=4), Scheme.default(dtype)
    params = initialise(network)
    stores = {key: WeightStore.from_array(of.params[key.partition("/")[2].partition("/")[2]]) for key in params}
    for store in stores.values():
        store.morph(scheme)
    params, options = Params(stores), RunOptions(compute="float32", kv_dtype="float32")
    if not covered(kind, "forward", dtype, name):
        with pytest.raises(UnsupportedError, match=f"is stored as {dtype}"):
            device(name).compile(lower(network), params, options)
        return
    executable = device(name).compile(lower(network), params, options)
    got = executable.forward(executable.new_state(), of.x, last_only=False)
    want = NumpyNetwork.of(network, params).output(of.x)
    agree_one(got, want, f"{kind} {scheme} on {name}")
    executable.close()
