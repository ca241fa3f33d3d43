"""Traces of Axon: the gradients of a whole sequence from windows of it, against differences of another package."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import DEVICES, graphs
from tests.graph.oracles import FIXTURES, axon
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.graph import GraphBuilder, NumpyGraphs, differentiate
from volumetric.layers.axon import TRACED
from volumetric.layers.emit_scope import Scope

FIRST = 5
ORACLE = axon("silu", "none", width=6, traces=True)
THERE = {"nu": "nu_log", "theta": "theta_log", "w1": "w1", "w2": "w2"}
CASES = ("axon_traces_none", "axon_traces_random")


def load(case: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """Parameters by our names, and everything as it is there."""
    with np.load(FIXTURES / f"{case}.npz") as file:
        of = {name: file[name].astype(np.float64) for name in file.files}
    return {ours: of[f"param/{name}"] for ours, (name, _) in ORACLE.params.items()}, of


def traces_there(of: dict[str, Array]) -> Array:
    """Traces in our order, ``[B, 8, hidden]``."""
    names = [f"E_{p}_{c}" for p in ("nu", "th", "w1", "w2") for c in ("c1", "c2")]
    return np.stack([of[f"trace/{name}"] for name in names], axis=1)


def agree(got: Array, want: Array, tolerance: float) -> None:
    scale = np.abs(want).max()
    np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("windows", [(FIRST, 9), (2, FIRST, 9), (1, 2, 3, 4, FIRST, 9)])
@pytest.mark.parametrize("case", CASES)
def test_the_layers_own_code(case: str, windows: tuple[int, ...]) -> None:
    p, of = load(case)
    values: dict[str, Array] = {}
    first, y, saved = 0, np.zeros(0), {}
    for end in windows:
        memory = Memory(first, values, streams=2, resets=of["resets"][:, first:end])
        if first == FIRST:
            agree(values["traces"], traces_there(of), 1e-8)
        y, saved = oracle(ORACLE.spec).forward(p, of["x"][:, first:end], memory=memory)
        first = end
    np.testing.assert_allclose(y, of["y2"], rtol=0, atol=1e-9)
    grads = oracle(ORACLE.spec).vjp(p, saved, of["cotangent"]).params
    for name in TRACED:
        agree(grads[name], of[f"grad_whole/{THERE[name]}"], 1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize("where", [*DEVICES, "float64"])
@pytest.mark.parametrize("case", CASES)
def test_graphs(case: str, where: str) -> None:
    p, of = load(case)
    device = NumpyGraphs(np.float64) if where == "float64" else graphs(where)
    dtype, loose = (np.float64, 1.0) if where == "float64" else (np.float32, 1e3)
    spec, (batch, _, width) = ORACLE.spec, of["x"].shape
    held: dict[str, Array] = {s.name: np.zeros((batch, *s.shape), dtype) for s in spec.states()}
    for first, end in ((0, FIRST), (FIRST, 9)):
        work = GraphBuilder()
        x, resets = work.input("x", (batch * (end - first), width)), work.input("resets", (batch, end - first))
        states = {f"layer/{name}": work.input(name, value.shape) for name, value in held.items()}
        scope = Scope(
            work=work,
            param=work.stored_tensor,
            path="layer",
            sequences=batch,
            resumes=True,
            resets=resets,
            states=states,
        )
        y = scope.emit(spec, x)
        wanted = [work.stored_tensor(name, p[name].shape) for name in TRACED]
        gy = work.input("gy", work.shape(y))
        grads = differentiate(work, {y: gy}, wanted)
        graph = work.finish([*states.values(), *(grads[i] for i in wanted)])
        store = device.store()
        for name, value in p.items():
            store.write(name, value.astype(dtype))
        seed = of["cotangent"] if first else np.zeros((batch, end, width))
        given = [of["x"][:, first:end].reshape(-1, width), of["resets"][:, first:end], *held.values()]
        made = device.compile(graph, store).run([v.astype(dtype) for v in (*given, seed.reshape(-1, width))])
        if first:
            for name, got in zip(TRACED, made[len(held) :], strict=True):
                agree(got, of[f"grad_whole/{THERE[name]}"], 1e-7 * loose)
        else:
            held = dict(zip(held, made, strict=False))
            agree(held["traces"], traces_there(of), 1e-8 * loose)
