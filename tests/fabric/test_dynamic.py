"""Masked nodes: as if they had never been, in NumPy, in graphs and on devices, forward and back."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import graphs
from tests.fabric.dynamic_cases import CASES, Arrays, cut, given, left, masked, states_left, states_put_back
from tests.fabric.test_layer import RESETS, alone
from tests.layers.test_vjp import differences
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base.errors import SpecError
from volumetric.fabric.layer import emit_fabric as fabric
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_entries import param_entries, state_entries
from volumetric.graph import differentiate, interpret
from volumetric.graph.build import GraphBuilder
from volumetric.graph.ops import Graph
from volumetric.layers.emit_scope import Scope
from volumetric.network import Network
from volumetric.run.graph import graph_of


def in_numpy(spec: Fabric, p: Arrays, x: np.ndarray) -> tuple[np.ndarray, Arrays, Arrays]:
    """Rows, states after them, and the gradients of their sum of squares."""
    memory = Memory(streams=2, resets=RESETS[:, : x.shape[1]])
    y, saved = oracle(spec).forward(p, x, memory=memory)
    grads = oracle(spec).vjp(p, saved, y)
    assert grads.inputs[0] is not None
    return y, memory.values, {**grads.params, "x": grads.inputs[0]}


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_masked_nodes_have_never_been(name: str) -> None:
    spec, gone = CASES[name]
    p, x = given(spec)
    y, states, grads = in_numpy(spec, masked(spec, p, gone), x)
    want, ends, slopes = in_numpy(cut(spec, gone), left(spec, p, gone), x)
    assert np.abs(y - in_numpy(spec, p, x)[0]).max() > 1e-3
    np.testing.assert_allclose(y, want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(grads["x"], slopes.pop("x"), rtol=1e-9, atol=1e-12)
    followed = left(spec, grads, gone)
    for key, slope in slopes.items():
        np.testing.assert_allclose(followed[key], slope, rtol=1e-9, atol=1e-12)
    for key, value in states_left(spec, states, gone).items():
        np.testing.assert_allclose(value, ends[key], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_masked_nodes_keep_nothing_and_learn_nothing(name: str) -> None:
    spec, gone = CASES[name]
    p, x = given(spec)
    _, states, grads = in_numpy(spec, masked(spec, p, gone), x)
    for key, of in param_entries(spec).items():
        if key != "living":
            still = np.broadcast_to(of.mask(of.entries_of(np.array(gone)), grads[key]), grads[key].shape)
            assert not grads[key][still].any()
    for key, of in state_entries(spec).items():
        rows = states[key]
        still = np.broadcast_to(of.mask(of.entries_of(np.array(gone)), rows[0]), rows.shape)
        assert not rows[still].any()
        assert rows[~still].any()


@pytest.mark.thorough
def test_gradients_beside_masked_nodes_are_differences() -> None:
    spec, gone = CASES["mixed"]
    p, x = given(spec, 2)
    p = masked(spec, p, gone)
    y, saved = oracle(spec).forward(p, x)
    gy = np.random.default_rng(1).standard_normal(y.shape)
    grads = oracle(spec).vjp(p, saved, gy)
    for key in ("ports.z.query", "public.weight", "distance", "cells.q.nu"):
        want = differences(lambda: float((oracle(spec).forward(p, x)[0] * gy).sum()), p[key])
        np.testing.assert_allclose(grads.params[key], want, rtol=1e-6, atol=1e-8)


def graph_back(spec: Fabric, p: Arrays, x: np.ndarray) -> Graph:
    """Rows, and the gradients of their sum of squares by parameters and rows."""
    work = GraphBuilder()
    rows = work.input("x", x.shape)
    params = {name: work.stored_tensor(name, value.shape) for name, value in p.items()}
    scope = Scope(work=work, param=lambda name, _: params[name], path="f", sequences=2)
    y = scope.emit(spec, rows)
    grads = differentiate(work, {y: y}, [*(params[s.name] for s in spec.params()), rows])
    return work.finish([y, *grads.values()])


@pytest.mark.parametrize("name", ["mixed", "dense"])
def test_graphs_are_the_layer(name: str) -> None:
    spec, gone = CASES[name]
    p, x = given(spec)
    p = masked(spec, p, gone)
    y, saved = oracle(spec).forward(p, x)
    back = oracle(spec).vjp(p, saved, y)
    found = interpret(graph_back(spec, p, x), [x], p, np.float64)
    for one, other in zip(found, [y, *(back.params[s.name] for s in spec.params()), back.inputs[0]], strict=True):
        assert other is not None
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.thorough
@pytest.mark.parametrize(("where", "name"), [("cpu", "mixed"), ("cpu", "dense"), ("gpu", "plain"), ("gpu", "dense")])
def test_devices_mask_without_compiling(where: str, name: str) -> None:
    spec, gone = CASES[name]
    p, x = given(spec)
    store = graphs(where).store()
    for key, value in p.items():
        store.write(key, value.astype(np.float32))
    program = graphs(where).compile(graph_back(spec, p, x), store)
    rows = [x.astype(np.float32)]
    before = program.run(rows)
    store.write("living", masked(spec, p, gone)["living"].astype(np.float32))
    y, *grads = program.run(rows)
    own = cut(spec, gone)
    other = graphs(where).store()
    for key, value in left(spec, p, gone).items():
        other.write(key, value.astype(np.float32))
    want, *slopes = graphs(where).compile(graph_back(own, left(spec, p, gone), x), other).run(rows)
    assert np.abs(y - before[0]).max() > 1e-3
    close(y, want)
    close(grads.pop(), slopes.pop())
    followed = left(spec, dict(zip((s.name for s in spec.params()), grads, strict=True)), gone)
    for key, slope in zip((s.name for s in own.params()), slopes, strict=True):
        close(followed[key], slope)
    store.write("living", p["living"].astype(np.float32))
    for one, again in zip(before, program.run(rows), strict=True):
        np.testing.assert_array_equal(one, again)


def close(one: np.ndarray, other: np.ndarray) -> None:
    scale = max(np.abs(other).max(initial=0), 1e-3)
    np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=1e-6)


def test_outputs_without_living_nodes_are_of_zeros() -> None:
    for name in ("plain", "mixed", "dense"):
        spec, _ = CASES[name]
        p, x = given(spec)
        ends = tuple(spec.facts.order[spec.facts.senders_count :].tolist())
        off = masked(spec, p, ends)
        y = oracle(spec).forward(off, x)[0]
        bias = np.concatenate([p[f"ports.{port.name}.bias"] for port in spec.outputs])
        np.testing.assert_array_equal(y, np.broadcast_to(bias, y.shape))
        values = {f"0.0.0.0/{key}": value for key, value in off.items()}
        [found] = interpret(graph_of(alone(spec), 5, sequences=2), [x], values, np.float64)
        np.testing.assert_array_equal(found, y)


def test_what_masked_nodes_hold_reaches_nobody() -> None:
    spec, gone = CASES["mixed"]
    p, x = given(spec)
    p = masked(spec, p, gone)
    odd = {name: np.full((2, *of.shape), np.nan) for name, of in ((s.name, s) for s in spec.states())}
    memory = Memory(streams=2)
    want = oracle(spec).forward(p, x[:, :2], memory=memory)[0]
    held = {}
    for name, of in state_entries(spec).items():
        still = of.mask(of.entries_of(np.array(gone)), memory.values[name][0])
        held[name] = np.where(still, odd[name], memory.values[name])
    after = oracle(spec).forward(p, x[:, 2:], memory=Memory(2, held, streams=2))[0]
    whole = oracle(spec).forward(p, x)[0]
    np.testing.assert_allclose(np.concatenate([want, after], 1), whole, rtol=1e-12)


def test_unmasked_nodes_begin_anew() -> None:
    spec, gone = CASES["mixed"]
    p, x = given(spec, 6)
    memory, other = Memory(streams=2), Memory(streams=2)
    oracle(spec).forward(masked(spec, p, gone), x[:, :3], memory=memory)
    oracle(cut(spec, gone)).forward(left(spec, p, gone), x[:, :3], memory=other)
    held = states_put_back(spec, other.values, gone)
    want = oracle(spec).forward(p, x[:, 3:], memory=Memory(3, held, streams=2))[0]
    found = oracle(spec).forward(p, x[:, 3:], memory=Memory(3, memory.values, streams=2))[0]
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


def test_declarations_are_json_and_check_nodes() -> None:
    spec, gone = CASES["plain"]
    network = alone(cut(spec, gone))
    assert Network.from_json(network.to_json()) == network
    assert '"dynamic"' not in alone(cut(spec, ())).to_json()
    assert Network.from_json(alone(spec).to_json()) == alone(spec)
    for without, match in (
        ((12,), "there is no node 12"),
        ((True,), r"without must be a list of whole numbers, got \(True,\)"),
        ((4, 4), "names node 4 twice"),
        ((0, 1, 2), "input 'a' is left without nodes"),
        ((9, 10, 11), "output 'y' is left without nodes"),
        ((3, 4, 5, 6, 7, 8), "population 'core' is left without nodes"),
    ):
        with pytest.raises(SpecError, match=match):
            cut(spec, without)


def test_dense_neighbourhoods_stay_dense_without_some() -> None:
    spec, gone = CASES["dense"]
    assert [len(block.receivers) for block in fabric._plan(spec).to_cells.blocks] == [24]
    assert [len(block.receivers) for block in fabric._plan(cut(spec, gone)).to_cells.blocks] == [21]
