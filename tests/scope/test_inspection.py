"""The inspector's answers: a number is what the layer computes, and each of its steps adds up; weights are exact."""

from __future__ import annotations

from math import isclose, isnan

import numpy as np
import pytest

from tests.examples import CASES, EXAMPLES
from volumetric import initialise
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.builders import sequential
from volumetric.clocked import Clocked
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.dtypes import Scheme
from volumetric.layers import LSTM, Dense, MultiHeadAttention
from volumetric.network import Network
from volumetric.network.grid import Coord, Link
from volumetric.observe.scene import scene_of
from volumetric.run.device import SequenceRows
from volumetric.run.lower import lower
from volumetric.scope.document import ScopeDocument, encode_document
from volumetric.scope.inspection import Inspection, InspectionSource, inspected
from volumetric.scope.scene_tables import scene_view

HERE = Coord(0, 0, 0, 0)
ROWS = 3


def alone(name: str):
    """Return a network of one example, its weights and rows."""
    spec, shape = CASES[name]
    ids = name == "embedding"
    network = Network(layers={HERE: spec}, input_shape=shape[1:], input_dtype="int32" if ids else "float32")
    draw = np.random.default_rng(5)
    size = (ROWS, *shape[1:])
    x = draw.integers(0, 3, size).astype(np.int32) if ids else draw.standard_normal(size).astype(np.float32)
    return network, initialise(network, seed=1), x


def check_steps(trace):
    """Check that sums are those of their terms, and that operands have the values of their steps."""
    steps = trace["steps"]
    for step in steps:
        if "terms" in step and np.isfinite(step["value"]):
            total = sum(term["value"] for term in step["terms"]) + step["rest"]
            assert isclose(total, step["value"], rel_tol=1e-6, abs_tol=1e-9), step
            for term in step["terms"]:
                product = np.prod([factor["value"] for factor in term["factors"]])
                assert isclose(term["value"], product, rel_tol=1e-9, abs_tol=1e-12), term
        factors = [factor for term in step.get("terms", ()) for factor in term["factors"]]
        for operand in [*step["operands"], *factors]:
            if "step" in operand:
                value = steps[operand["step"]]["value"]
                assert isclose(value, operand["value"], rel_tol=1e-6, abs_tol=1e-9) or isnan(value), operand


def check_example(name: str):
    network, params, x = alone(name)
    inspection = Inspection(network, params, x)
    executable = ReferenceDevice(np.float64).compile(lower(network), params)
    y = executable.run([SequenceRows(executable.new_state(), x, "all")])[0]
    y = np.asarray(next(iter(y.values())) if isinstance(y, dict) else y)[ROWS - 1].ravel()
    assert inspection._rows is not None
    graph = inspection._rows.graph(HERE, ROWS - 1)
    for index in {0, y.size // 2, y.size - 1}:
        trace = inspection.explain(0, ROWS - 1, index=index) if inspection.place(0)[1] is None else None
        if trace is None:  # the layer has several nodes in the scene
            at = graph.outputs[str(HERE)], graph.row * y.size + index
            trace = inspection.explain(0, ROWS - 1, at=at)
        got, want = trace["value"], float(y[index])
        assert isclose(got, want, rel_tol=1e-6, abs_tol=1e-9) or (isnan(got) and isnan(want)) or got == want, (
            name,
            index,
        )
        check_steps(trace)


FIRST = [next(iter(entry.cases)) for entry in EXAMPLES.values()]


def test_a_number_of_each_kind_of_layer_is_what_the_layer_computes():
    for name in FIRST:
        check_example(name)


@pytest.mark.thorough
def test_a_number_of_every_example_is_what_the_layer_computes():
    for name in CASES:
        check_example(name)


def test_a_product_is_shown_with_its_largest_terms():
    network = sequential(4, 2, hidden=(32,))
    params = initialise(network)
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    inspection = Inspection(network, params, x)
    hidden = inspection.numbers(0, 4)["groups"][0]["values"]
    trace = inspection.explain(1, 4, index=1, terms=8)
    [step] = [step for step in trace["steps"] if "terms" in step][:1]
    weight, bias = (params[f"1.0.0.0/{name}"].numpy().astype(float) for name in ("weight", "bias"))
    products = [*(weight[1] * hidden), bias[1]]
    assert step["count"] == 33
    assert len(step["terms"]) == 8
    assert [term["value"] for term in step["terms"]] == pytest.approx(sorted(products, key=abs, reverse=True)[:8])
    assert step["value"] == pytest.approx(sum(products))
    [w, h] = next(term for term in step["terms"] if len(term["factors"]) == 2)["factors"]
    assert w["of"]["kind"] == "parameter"
    assert w["of"]["name"] == "1.0.0.0/weight"
    assert h["of"] == {"kind": "layer", "name": "0.0.0.0", "index": [w["of"]["index"][1]]}
    assert w["value"] == weight[tuple(w["of"]["index"])]


def machine() -> Clocked:
    specs = Dense(3, 5, activation="tanh"), LSTM(5, 4), Dense(4, 5)
    layers = {Coord(0, 0, i, 0): spec for i, spec in enumerate(specs)}
    link = Link(Coord(0, 0, 2, 0), Coord(0, 0, 1, 0), combine="add")
    network = Network(layers=layers, links=(link,), input_shape=(3,))
    return Clocked(network, clocks={Coord(0, 0, 1, 0): "every(2)"})


def test_ticks_of_a_clocked_network_are_explained():
    clocked = machine()
    params = initialise(clocked.network)
    x = np.random.default_rng(2).standard_normal((9, 3)).astype(np.float32)
    resets = np.zeros(9)
    resets[5] = 1
    inspection = Inspection(clocked, params, x, resets=resets)
    stream = clocked.stream_on(ReferenceDevice(np.float64), params)
    unfired = 0
    for t in range(9):
        stream.run(x[None, t : t + 1], resets=resets[None, t : t + 1])
        state = stream.state()
        for node, coord in enumerate(clocked.network.layers):
            trace = inspection.explain(node, t, index=2)
            assert trace["value"] == pytest.approx(state[f"out/{coord}/1"].ravel()[2], rel=1e-6, abs=1e-12)
            check_steps(trace)
            unfired += not trace["fired"]
    assert unfired == 4  # the clocks of a stream start anew when it is reset
    reads = [s for s in inspection.explain(1, 7, index=0)["steps"] if s["op"] == "reads"]
    assert {term["factors"][0]["of"]["name"] for term in reads[0]["terms"]} == {"0.0.0.0", "0.0.2.0"}
    assert inspection.explain(1, 2, index=0)["value"] == inspection.explain(1, 2, index=0)["value"]  # also backwards


@pytest.mark.parametrize("name", ["fabric-mixed", "program"])
def test_nodes_of_fabrics_and_regions_of_programs_have_numbers(name):
    spec, shape = CASES[name]
    network = Network(layers={HERE: spec}, input_shape=shape[-1:])
    params = initialise(network)
    x = np.random.default_rng(0).standard_normal((6, *shape[-1:])).astype(np.float32)
    inspection = Inspection(network, params, x)
    executable = ReferenceDevice(np.float64).compile(lower(network), params)
    state = executable.new_state()
    executable.run([SequenceRows(state, x[:5], "last")])
    stored = {key: value.ravel() for key, value in state.values.items()}
    [(_, _, count)] = inspection.spans
    seen = 0
    for node in range(count):
        for group in inspection.numbers(node, 4)["groups"]:
            trace = inspection.explain(node, 4, group["name"], group["count"] - 1)
            check_steps(trace)
            value = float(group["values"].ravel()[-1])
            assert trace["value"] == pytest.approx(value, rel=1e-6, abs=1e-12)
            state_of = {"public output": "shown", "content": "canvas"}.get(group["name"], group["name"])
            if f"{HERE}/{state_of}" in stored:
                assert np.isclose(stored[f"{HERE}/{state_of}"], value, rtol=1e-6, atol=1e-12).any()
                seen += 1
    assert seen >= 4
    view = inspected(scene_view(scene_of(network)), network, params, x)
    assert encode_document(ScopeDocument(title="t", source="s", views=(view,)))


def test_the_last_tick_of_a_running_stream_is_explained():
    clocked = machine()
    params = initialise(clocked.network)
    stream = clocked.stream_on(ReferenceDevice(np.float64), params)
    inspection = Inspection(clocked, params)
    for t, x in enumerate(np.random.default_rng(2).standard_normal((4, 1, 3))):
        inspection.see(t, stream.state(), {"input": x})
        stream.run(x[None])
    for node, coord in enumerate(clocked.network.layers):
        want = stream.state()[f"out/{coord}/1"].ravel()
        assert inspection.numbers(node)["t"] == 3
        assert inspection.numbers(node)["groups"][0]["values"] == pytest.approx(want, rel=1e-6)
        assert inspection.explain(node, None, index=1)["value"] == pytest.approx(want[1], rel=1e-6)
    with pytest.raises(SpecError, match="its last row 3 only"):
        inspection.numbers(0, 1)


@pytest.mark.parametrize("name", ["gru", "mha"])
def test_the_last_row_of_a_running_stream_is_explained(name):
    network, params, x = alone(name)
    executable = ReferenceDevice(np.float64).compile(lower(network), params)
    state = executable.new_state()
    executable.run([SequenceRows(state, x[:2], "last")])
    inspection = Inspection(network, params)
    inspection.see(7, state.values, {"input": x[2:]})  # the stream was reset in between
    assert inspection.explain(0, 7, index=1)["value"] == pytest.approx(
        Inspection(network, params, x).explain(0, 2, index=1)["value"], rel=1e-9
    )


def test_other_actions_go_to_the_source_behind():
    class Behind:
        def connect(self, send):
            send({"view": "net"})

        def act(self, view, action):
            return {"asked": action["do"]}

        def snapshot(self):
            return ["net"]

        def close(self):
            self.closed = True

    network = sequential(4, 2)
    behind, sent = Behind(), []
    source = InspectionSource({"net": Inspection(network, initialise(network))}, behind)
    source.connect(sent.append)
    assert sent == [{"view": "net"}]
    assert source.act("net", {"do": "mask"}) == {"asked": "mask"}
    assert source.act("net", {"do": "facts", "node": 0})["kind"] == "dense"
    assert source.snapshot() == ["net"]
    source.close()
    assert behind.closed


def test_quantised_weights_have_codes_scales_and_offsets():
    network = Network(layers={HERE: Dense(64, 40)}, input_shape=(64,))
    params = initialise(network)
    for scheme, offset in (("int4:g32", False), ("uint4:g32", True), ("float8_e4m3fn:row", False), ("bfloat16", False)):
        params[HERE, "weight"].morph(Scheme.parse(scheme))
        block = Inspection(network, params).parameter(0, "weight", (8, 16), (16, 48))
        assert np.array_equal(block["values"], params[HERE, "weight"].numpy()[8:16, 16:48])
        assert ("offset" in block) == offset
        assert block["codes"].shape == (8, 32)
        if block["kind"] == "integer":
            spread = block["codes"] * block["scale"] + (block["offset"] if offset else 0)
            assert np.allclose(spread, block["values"], rtol=1e-6, atol=1e-7)


def test_large_matrices_are_averaged_in_blocks():
    network = Network(layers={HERE: Dense(300, 200)}, input_shape=(300,))
    params = initialise(network)
    block = Inspection(network, params).parameter(0, "weight")
    weight = params[HERE, "weight"].numpy().astype(float)
    assert block["part"] == [2, 3]
    assert block["mean"].shape == (100, 100)
    assert np.allclose(block["mean"], weight.reshape(100, 2, 100, 3).mean((1, 3)), atol=1e-6)
    assert np.allclose(block["rms"], np.sqrt(np.square(weight).reshape(100, 2, 100, 3).mean((1, 3))), atol=1e-6)


def test_wrong_questions_are_answered_by_sentences():
    network = sequential(4, 2, hidden=(8,))
    params = initialise(network)
    source = InspectionSource({"net": Inspection(network, params, np.zeros((3, 4), np.float32))})
    wrong = [
        ({"do": "destroy"}, "cannot do 'destroy'"),
        ({"do": "facts", "node": "0"}, "whole number"),
        ({"do": "facts", "node": 9}, "no node 9"),
        ({"do": "parameter", "node": 0, "name": "wieght"}, "no parameter 'wieght'"),
        ({"do": "parameter", "node": 0, "name": "weight", "rows": [0, 99]}, "rows 0:99 are not within 0:8"),
        ({"do": "parameter", "node": 0, "name": "weight", "columns": [2]}, "two whole numbers"),
        ({"do": "numbers", "node": 0, "t": 3}, "no row 3"),
        ({"do": "explain", "node": 0, "t": 0, "of": "c"}, "no 'c'"),
        ({"do": "explain", "node": 0, "t": 0, "index": 10**9}, "8 numbers"),
        ({"do": "explain", "node": 0, "t": 0, "at": [10**9, 0]}, "no number"),
        ({"do": "explain", "node": 0, "t": True}, "whole number"),
    ]
    for action, sentence in wrong:
        with pytest.raises(SpecError, match=sentence):
            source.act("net", action)
    with pytest.raises(SpecError, match="nothing can be inspected"):
        source.act("other", {"do": "facts", "node": 0})
    with pytest.raises(UnsupportedError, match="no recorded rows"):
        Inspection(network, params).numbers(0, 0)
    with pytest.raises(SpecError, match="not a scene of this network"):
        inspected(scene_view(scene_of(sequential(4, 2))), network, params)
    assert source.act("net", {"do": "numbers", "node": 1})["t"] == 2
    assert "$base64" in source.act("net", {"do": "parameter", "node": 0, "name": "weight"})["values"]


def test_a_page_holds_what_fits_and_says_what_does_not():
    layers = {Coord(0, 0, i, 0): spec for i, spec in enumerate([Dense(6, 16), LSTM(16, 16), MultiHeadAttention(16, 4)])}
    network = Network(layers=layers, input_shape=(6,))
    params = initialise(network)
    x = np.random.default_rng(0).standard_normal((1, 40, 6)).astype(np.float32)
    plain = scene_view(scene_of(network))
    whole = inspected(plain, network, params, x, explain=[39], most_bytes=1 << 20).data["inspection"]
    assert not whole["missing"]
    assert whole["rows"] == [39]
    assert np.array_equal(whole["weights"]["0.0.1.0/hh.weight"]["values"], params["0.0.1.0/hh.weight"].numpy())
    parts = {p["name"]: p.get("parts", {}).get("names") for layer in whole["layers"] for p in layer["parameters"]}
    assert parts["hh.weight"] == ["gate i", "gate f", "gate g", "gate o"]
    assert parts["q.weight"] == [f"head {i}" for i in range(4)]
    small = inspected(plain, network, params, x, most_bytes=3000).data["inspection"]
    assert len(small["missing"]) == 2
    assert 0 < sum(block.get("values", block.get("mean")).nbytes for block in small["weights"].values()) <= 3000
    none = inspected(plain, network, params).data["inspection"]
    assert none["rows"] == []
    assert "no recorded rows" in none["why"]
