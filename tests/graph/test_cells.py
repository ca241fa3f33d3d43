"""Cells and scaffolds against another package: windows that go on from a state, with resets and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import graphs
from tests.graph import oracles
from tests.graph.oracles import Oracle
from tests.graph.scaffold_oracles import SCAFFOLD_ORACLES
from tests.oracles import oracle as in_numpy
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.graph import GraphBuilder, NumpyGraphs, differentiate
from volumetric.layers.emit_scope import Scope

ORACLES = oracles.ORACLES | SCAFFOLD_ORACLES
EXACT = 1e-9
FORWARD, BACKWARD = 2e-5, 2e-4
UNIT = 2.0**-24
TOLD = (
    "conv_mixing_random",
    "slstm_random",
    "mlstm_chunked_random",
    "mlstm_large",
    "axon_silu_random",
    "xl_resets",
    "agalite_random",
    "postup_gated_lstm_random",
    "preup_mlstm_random",
    "column_top2_of3_random",
)
"""Cases that a GPU is held to, one or two a cell: what else can differ the laws of sequences cover."""


def starts(oracle: Oracle, rest: dict[str, Array]) -> dict[str, Array]:
    """The states that the window goes on from; zeros where a fresh stream is what the case begins with."""
    lead = rest["x"].shape[:1]
    fresh = {s.name: np.zeros((*lead, *s.shape)) for s in oracle.spec.states()}
    return fresh | {name.removeprefix("state0/"): v for name, v in rest.items() if name.startswith("state0/")}


def window(oracle: Oracle, case: str, device: object, dtype: type, *, shaken: bool = False) -> dict[str, Array]:
    """Everything that the fixture has, by its names, as a device computes it in one graph.

    Parameters
    ----------
    shaken : x and parameters change by as much as rounding to float32 may change them
    """
    p, rest = oracle.load(case)
    if shaken:
        rng = np.random.default_rng(1)
        p = {name: v * (1 + UNIT * rng.standard_normal(v.shape)) for name, v in p.items()}
        rest["x"] = rest["x"] * (1 + UNIT * rng.standard_normal(rest["x"].shape))
    spec, (batch, length, width) = oracle.spec, rest["x"].shape
    begun = starts(oracle, rest)
    work = GraphBuilder()
    x, resets = work.input("x", (batch * length, width)), work.input("resets", (batch, length))
    first = {name: work.input(name, value.shape) for name, value in begun.items()}
    states = {f"layer/{name}": i for name, i in first.items()}
    scope = Scope(
        work=work, param=work.stored_tensor, path="layer", sequences=batch, resumes=True, resets=resets, states=states
    )
    y = scope.emit(spec, x)
    outputs = {"y": work.reshape(y, (batch, length, width))}
    outputs |= {f"state1/{name}": states[f"layer/{name}"] for name in begun}
    given = [rest["x"].reshape(-1, width), rest["resets"], *begun.values()]
    if "cotangent" in rest:
        wanted = {f"grad/{s.name}": work.stored_tensor(s.name, s.shape) for s in spec.params()} | {"grad/x": x}
        wanted |= {f"grad/state0/{name}": i for name, i in first.items()}
        found = differentiate(work, {y: work.input("gy", work.shape(y))}, wanted.values())
        outputs |= {name: found[i] for name, i in wanted.items() if i in found}
        given.append(rest["cotangent"].reshape(-1, width))
    store = device.store()  # pyright: ignore[reportAttributeAccessIssue]  (any device of graphs)
    for name, value in p.items():
        store.write(name, value.astype(dtype))
    graph = work.finish(list(outputs.values()))
    made = device.compile(graph, store).run([v.astype(dtype) for v in given])  # pyright: ignore[reportAttributeAccessIssue]
    result = dict(zip(outputs, made, strict=True))
    return {name: v.reshape(rest[name].shape) if name in rest else v for name, v in result.items()}


def check(
    found: dict[str, Array],
    rest: dict[str, Array],
    forward: float,
    backward: float,
    shaken: dict[str, Array] | None = None,
) -> None:
    """Hold all that there is to what is known; gradients no closer than rounding what they come from moves them."""
    want = {name: v for name, v in rest.items() if name.startswith(("y", "state1", "grad"))}
    floor = 0.1 * max((np.abs(v).max(initial=0) for name, v in want.items() if name.startswith("grad")), default=0)
    for name, value in want.items():
        got = found.get(name, np.zeros_like(value))
        back = name.startswith("grad")
        scale = max(np.abs(value).max(), floor if back and shaken else 1e-3)
        within = backward if back else forward
        if shaken and back and name in shaken:
            within = max(within, np.abs(shaken[name] - value).max() / scale)
        np.testing.assert_allclose(got / scale, value / scale, rtol=0, atol=within, err_msg=name)


@pytest.mark.thorough
@pytest.mark.parametrize("case", ORACLES)
def test_the_layers_own_code(case: str) -> None:
    oracle = ORACLES[case]
    p, rest = oracle.load(case)
    memory = Memory(1, starts(oracle, rest), streams=len(rest["x"]), resets=rest["resets"])
    y, saved = in_numpy(oracle.spec).forward(p, rest["x"], memory=memory)
    found = {"y": y} | {f"state1/{name}": value for name, value in memory.values.items()}
    if "cotangent" in rest:
        grads = in_numpy(oracle.spec).vjp(p, saved, rest["cotangent"])
        assert grads.inputs[0] is not None
        found |= {"grad/x": grads.inputs[0]} | {f"grad/{name}": g for name, g in grads.params.items()}
    found |= {name: v for name, v in rest.items() if name.startswith("grad/state0")}  # constants there
    check(found, rest, EXACT, EXACT)


@pytest.mark.thorough
@pytest.mark.parametrize("case", ORACLES)
def test_graphs_in_float64(case: str) -> None:
    oracle = ORACLES[case]
    check(window(oracle, case, NumpyGraphs(np.float64), np.float64), oracle.load(case)[1], EXACT, EXACT)


@pytest.mark.thorough
@pytest.mark.parametrize(("case", "where"), [*((case, "cpu") for case in ORACLES), *((case, "gpu") for case in TOLD)])
def test_devices(case: str, where: str) -> None:
    oracle = ORACLES[case]
    moved = window(oracle, case, NumpyGraphs(np.float64), np.float64, shaken=True)
    check(window(oracle, case, graphs(where), np.float32), oracle.load(case)[1], FORWARD, BACKWARD, moved)
