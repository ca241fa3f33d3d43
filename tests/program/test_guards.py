"""What does not fire need not be computed, be it a part of what is computed side by side: nothing of it is seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.devices import device, graphs
from tests.examples.programs import program
from tests.graph.agreement import agree
from volumetric.base._typing import Array
from volumetric.graph import Graph, GraphBuilder
from volumetric.graph.interpret import interpret
from volumetric.graph.operations import OPS
from volumetric.graph.predicates import Predicate
from volumetric.graph.unroll_scans import unroll_scans, write_out
from volumetric.network import Network, initialise
from volumetric.program import Program
from volumetric.program.layer.attention import RULES
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_masks import Tile
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import In, Out, Signal
from volumetric.program.layer.region import Canvas, Region
from volumetric.run.graph import graph_of

CLOCKS = ("every(2)", "every(2, 1)", "every(3)", "every(1)")


def clocked(rule: str, *, stored: bool = True, **fields: Any) -> Network:
    """Regions of clocks of their own, each written by an edge of one rule that reads another, and one from a memory."""
    regions = {f"r{n}": Region(((n, n + 1), (0, 4)), clock=clock) for n, clock in enumerate(CLOCKS)}
    if stored:
        regions["m"] = Region(((4, 5), (0, 4)), family="memory", carrier="memory", slots=4)
    edges = [Edge(f"r{n}", f"r{(n + 1) % 4}", rule=rule, write="add", **fields) for n in range(4)]
    if stored:
        edges += [Edge("m", f"r{n}", rule=rule, write="gate") for n in range(4)]
        edges.append(Edge("r3", "m", rule="cross"))
    ports = {"in": In("r3", 2), "out": Out("r1", 2), "far": Out("r0", 2)}
    return program(regions, tuple(edges), ports, (5, 4)).program.network()


def values_of(network: Network, graph: Graph) -> dict[str, Array]:
    """Parameters, and states as they begin."""
    own = {key: store.values() for key, store in initialise(network, seed=1).items()}
    return {key: own[key] if key in own else np.zeros(t.shape, np.float32) for key, t in graph.tensors_by_key.items()}


def spoiled(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """Return a graph in which NaN stands where a guard says that nobody reads."""
    nodes: list[Any] = []
    for node in graph.nodes:
        guard = node.predicate
        nodes.append(replace(node, predicate=None))
        if guard is None or node.op == "reshape":
            continue
        run = OPS[node.op].run

        def without(args: list[Array], attrs: Any, run: Any = run, guard: Predicate = guard) -> list[Array]:
            *own, flags = args
            made = run(own, {k: v for k, v in attrs.items() if k != "guard"})
            off = (flags[:, guard.column : guard.column + guard.parts] == 0).all(0)
            found = [np.array(y) for y in made]
            for y in found:
                y.reshape(guard.parts, -1)[off] = np.nan
            return found

        name = f"{node.op} under {guard.column} {guard.parts}"
        monkeypatch.setitem(OPS, name, replace(OPS[node.op], run=without))
        nodes[-1] = replace(node, op=name, inputs=(*node.inputs, guard.tensor), predicate=None)
    return replace(graph, nodes=tuple(nodes))


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from ((name, {}) for name in RULES)
    yield from ((name, {"mask": Tile((1, 2))}) for name in ("cross", "mamba", "linear"))


@pytest.mark.thorough
@pytest.mark.parametrize(("rule", "fields"), list(cases()))
def test_nothing_is_seen_of_what_did_not_fire(
    rule: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands there, and by all rules: also that products and rows of scores are guarded in parts."""
    network = clocked(rule, **fields)
    graph = write_out(unroll_scans(graph_of(network, 3, sequences=2, resumes=True, parted=True)))
    kept = {node.op for node in graph.nodes if node.predicate is not None and node.predicate.parts > 1}
    assert {"copy": "gather_rows"}.get(rule, "gemm") in kept or rule == "none"
    x = np.random.default_rng(2).standard_normal((2, 3, 2)).astype(np.float32)
    want = interpret(graph, [x], values_of(network, graph), np.float32)
    found = interpret(spoiled(graph, monkeypatch), [x], values_of(network, graph), np.float32)
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.thorough
def test_a_gpu_leaves_out_parts_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    network = clocked("cross", stored=False)
    params = initialise(network, seed=1)
    x = np.random.default_rng(2).standard_normal((3, 8, 2)).astype(np.float32)
    found: list[Any] = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(GraphBuilder, "predicated", lambda *_, **__: nullcontext())
        stream: Any = device("gpu").stream(network, params, batch=3)
        found.append([stream.run({"in": x[:, :4]}), stream.run({"in": x[:, 4:]})])
    for one, other in zip(*found, strict=True):
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])


def direct(rule: str) -> Network:
    """Regions of clocks of their own, whose edges are what GPUs have a kernel for: heads of whole vectors."""
    regions = {f"r{n}": Region(((3 * n, 3 * n + 3), (0, 4)), clock=clock) for n, clock in enumerate(CLOCKS)}
    edges = [Edge(f"r{n}", f"r{(n + 1) % 4}", rule=rule) for n in range(4)]
    ports: Any = {"in": In("r3", 2), "out": Out("r1", 2), "far": Out("r0", 2)}
    canvas = Canvas(frames=1, shape=(12, 4), width=8, regions=regions)
    return Program(canvas, edges, ports, heads=2).network()


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["cross", "gated", "local"])
def test_edges_in_one_launch_leave_out_parts_to_the_same_bits(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = direct(rule)
    params = initialise(network, seed=1)
    x = np.random.default_rng(2).standard_normal((2, 8, 2)).astype(np.float32)
    found: list[Any] = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(GraphBuilder, "predicated", lambda *_, **__: nullcontext())
        stream: Any = device("gpu").stream(network, params, batch=2)
        found.append(stream.run({"in": x}))
        [program] = stream._programs
        heads = [one for one in program.recording.entries if one.dispatch.kernel == "graph/cross_heads"]
        assert len(heads) == 8
        assert all(("fires" in one.buffers) is not plain for one in heads)
    for name, value in found[0].items():
        np.testing.assert_array_equal(value, found[1][name])
    reference = device("reference").stream(network, params, batch=2).run({"in": x})
    for name, value in found[0].items():
        np.testing.assert_allclose(value, reference[name], rtol=0, atol=2e-5)


@pytest.mark.thorough
def test_edges_of_many_clocks_are_as_many_launches_as_of_one() -> None:
    network = clocked("cross")
    device = graphs("gpu")
    graph = graph_of(network, 2, sequences=1, resumes=True, parted=True)
    store = device.store()
    for key, value in values_of(network, graph).items():
        store.write(key, value)
    made = device.compile(graph, store)
    kernels = [entry.dispatch.kernel for entry in made.recording.entries if "fires" in entry.buffers]
    assert kernels.count("graph/gemm") + kernels.count("graph/few_rows") == 2 * 6  # those of clocks read rows or slots


def watching(count: int) -> Network:
    """Regions in a ring, each of which fires by its own error and by what it is told, and some seldom, too."""
    names = [f"r{n}" for n in range(count)]
    clocks = [
        f"cooldown({name}.prediction > 0.{n % 3}1 || on(now), 2) || every(3, {n % 2})" for n, name in enumerate(names)
    ]
    regions = {name: Region(((n, n + 1), (0, 3)), clock=clocks[n]) for n, name in enumerate(names)}
    edges = [Edge(name, names[n - 1], when=f"{name}.prediction < 5") for n, name in enumerate(names)]
    ports = {"in": In("r0", 2), "now": Signal(), "out": Out("r1", 2)}
    meters = tuple(Meter(name, decay=0.5) for name in names)
    return program(regions, tuple(edges), ports, (count, 3), meters=meters).program.network()


@pytest.mark.thorough
def test_meters_and_clocks_that_are_alike_are_asked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """They tell what each tells alone, and are as many launches a row however many they are."""
    network = watching(7)
    x = np.random.default_rng(3).standard_normal((2, 5, 3)).astype(np.float32)
    x[:, :, 2] = x[:, :, 2] > 1
    apart, beside = (graph_of(network, 5, sequences=2, resumes=True, parted=parted) for parted in (False, True))
    states = [values_of(network, graph) for graph in (apart, beside)]
    [one], [other] = (
        interpret(graph, [x], held, np.float32) for graph, held in zip((apart, beside), states, strict=True)
    )
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-6)
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=0, atol=1e-6, err_msg=name)
    clocks = next(value for name, value in states[0].items() if name.endswith("/clock"))
    assert len(np.unique(clocks)) > 2
    whole = unroll_scans(beside)
    [again] = interpret(spoiled(whole, monkeypatch), [x], values_of(network, beside), np.float32)
    np.testing.assert_array_equal(again, other)
    launches: list[int] = []
    for count in (12, 24):
        counts = []
        for rows in (2, 4):
            wide = graph_of(watching(count), rows, sequences=1, resumes=True, parted=True)
            store = graphs("gpu").store()
            for key, value in values_of(watching(count), wide).items():
                store.write(key, value)
            counts.append(len(graphs("gpu").compile(wide, store).recording.entries))
        launches.append((counts[1] - counts[0]) // 2)
    assert launches[1] - launches[0] <= 6  # six tensors are joined by a launch


PARTS, WIDE = 3, 500


@pytest.mark.thorough
def test_kernels_leave_out_parts() -> None:
    """Each operation of which parts may be left out, smaller than a workgroup and larger; what is wanted is right."""
    rng = np.random.default_rng(0)
    work = GraphBuilder()
    flags = work.input("flags", (1, 2 + PARTS))
    made: list[int] = []
    inputs: list[Array] = [np.array([[0, 1, 0, 1, 0]], np.float32)]

    def given(*shape: int) -> int:
        inputs.append(rng.standard_normal(shape).astype(np.float32))
        return work.input("x", shape)

    for n in (5, WIDE):
        x, y, w = given(PARTS, n, 7), given(1, n, 7), given(PARTS, 7, 9)
        shared, table = given(1, 7, 9), given(11, 7)
        few, rows = given(2 * PARTS, 4, 8), given(PARTS * n, 7)
        with work.predicated(flags, 2, PARTS):
            ids = work.constant(rng.integers(0, 11, PARTS * n).astype(np.int32))
            made += [
                work.unary(x, "sigmoid"),
                work.binary("mul", x, y),
                work.gemm(x, w),
                work.gemm(work.reshape(x, (1, PARTS * n, 7)), shared),
                work.gemm(few, work.permute(few, (0, 2, 1))),
                work.permute(x, (0, 2, 1)),
                work.permute(work.reshape(x, (PARTS, n, 1, 7)), (0, 2, 3, 1)),
                work.part(x, 2, 1, 6),
                work.pad(x, (0, 1, 0), (0, 0, 2)),
                work.concat((x, x), 2),
                work.broadcast(work.part(x, 1, 0, 1), (PARTS, n, 7)),
                work.reduce(x, "sum", (1,)),
                work.gather_rows(table, ids),
                work.softmax(rows),
                work.entmax(rows, 1.5),
                work.keep_largest(rows, 2),
                work.norm(rows, kind="layer", eps=1e-5),
            ]
    graph = work.finish(made)
    assert all(node.predicate is not None for node in graph.nodes)
    want = interpret(graph, inputs, {}, np.float32)
    program = graphs("gpu").compile(graph, graphs("gpu").store())
    assert all("fires" in entry.buffers for entry in program.recording.entries)
    for i, found, right in zip(made, program.run(inputs), want, strict=True):
        parts, wanted = found.reshape(PARTS, -1), right.reshape(PARTS, -1)
        agree(parts[1], wanted[1], str(i))
        if work.shape(i)[0] == PARTS and found.size > 4 * 256 * PARTS:
            assert not parts[2].reshape(-1)[1024:].any()  # where no workgroup makes some of another part, too
