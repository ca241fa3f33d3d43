"""Networks with several inputs and outputs: on every device what the reference gives, and what cut networks give."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, FAST, device
from tests.networks import tiny_llama
from volumetric.base.errors import GenerationError, ShapeError, SpecError, UnsupportedError
from volumetric.graph import NumpyGraphs
from volumetric.layers import LSTM, Dense, Embedding, Entmax, LayerSpec, MultiHeadAttention, RMSNorm
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid, Link, Port
from volumetric.run import RunOptions, lower
from volumetric.run.device import Executable, SequenceRows
from volumetric.run.graph import graph_of

OPTIONS = RunOptions(context=48, compute="float32", kv_dtype="float32")
WIDTH = 8


def llama() -> Network:
    """A decoder that also reads token types and features, with taps before, in and behind its last attention."""
    plain = tiny_llama()
    ports = {
        "features": Port(coord=Coord(1, slot=3), shape=(32,), combine="add"),
        "types": Port(coord=Coord(0, slot=1), dtype="int32"),
    }
    layers = {**plain.layers, Coord(0, slot=1): Embedding(num_embeddings=3, embedding_dim=32)}
    link = Link(kind="activation", source=Coord(0), target=Coord(1), combine="add")
    taps = {
        "types": Coord(0, slot=1),
        "middle": Coord(1, slot=5),
        "stream": Coord(2, slot=2),
        "normed": Coord(2, slot=3),
        "hidden": Coord(3),
        "again": Coord(3),
    }
    return dataclasses.replace(plain, layers=layers, links=(*plain.links, link), inputs=ports, outputs=taps)


def stack(*layers: LayerSpec, **more: Any) -> Network:
    """Features of width 8 through layers."""
    placed = {Coord(z): spec for z, spec in enumerate(layers)}
    return Network(grid=Grid(len(layers)), layers=placed, input_shape=(WIDTH,), input_dtype="float32", **more)


def cores() -> Network:
    """Layers that run on rows, and such that do not, by turns; ports and taps at both."""
    dense = Dense(in_features=WIDTH, out_features=WIDTH)
    ports = {
        "late": Port(coord=Coord(5), shape=(WIDTH,), combine="add"),
        "instead": Port(coord=Coord(2), shape=(WIDTH,)),
    }
    links = (Link(kind="activation", source=Coord(1), target=Coord(4), combine="add"),)
    taps = {"soft": Coord(1), "cell": Coord(3), "softer": Coord(5)}
    layers = (dense, Entmax(), dense, LSTM(input_size=WIDTH, hidden_size=WIDTH), dense, Entmax(), dense)
    return stack(*layers, inputs=ports, outputs=taps, links=links)


def loop() -> Network:
    """What the last layer makes goes back to the second one, three rows later."""
    dense = Dense(in_features=WIDTH, out_features=WIDTH, activation="tanh")
    links = (Link(kind="activation", source=Coord(2), target=Coord(1), combine="add", delay=3),)
    ports = {"more": Port(coord=Coord(2), shape=(WIDTH,), combine="add")}
    return stack(dense, dense, dense, links=links, inputs=ports, outputs={"first": Coord(0), "second": Coord(1)})


def two_way() -> Network:
    """Rows that see each other both ways, and a tap that is called "output"."""
    attention = MultiHeadAttention(embed_dim=WIDTH, num_heads=2, causal=False)
    norm = RMSNorm(num_features=WIDTH)
    ports = {"more": Port(coord=Coord(1), shape=(WIDTH,), combine="add")}
    taps = {"output": Coord(2), "last": Coord(3)}
    return stack(norm, attention, norm, Dense(in_features=WIDTH, out_features=3), inputs=ports, outputs=taps)


NETWORKS = {"llama": llama, "cores": cores, "loop": loop, "two_way": two_way}


def rows(network: Network, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        name: rng.integers(0, 3, count).astype(np.int32)
        if port.dtype == "int32"
        else rng.standard_normal((count, *port.shape)).astype(np.float32)
        for name, port in network.ports.items()
    }


def compiled(network: Network, name: str, seed: int = 3) -> Executable:
    return device(name).compile(lower(network), initialise(network, seed), OPTIONS)


def close(got: Any, want: Any) -> None:
    assert list(got) == list(want)
    for name in want:
        assert got[name].shape == want[name].shape, name
        scale = max(0.1, float(np.abs(want[name]).max(initial=0)))
        np.testing.assert_allclose(got[name], want[name], rtol=0, atol=2e-5 * scale, err_msg=name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("which", NETWORKS)
def test_ragged_calls_of_different_wants_agree_with_the_reference(
    which: str, name: str, rng: np.random.Generator
) -> None:
    network = NETWORKS[which]()
    slow, fast = compiled(network, "reference"), compiled(network, name)
    names = list(network.taps)
    sizes = (5, 1, 7, 1)
    states = [(slow.new_state(), fast.new_state()) for _ in sizes]
    for _ in range(3):
        given = [rows(network, size, rng) for size in sizes]
        wanted = rng.choice(["last", "all", "none"], len(sizes))
        asked = [
            None if rng.random() < 0.3 else tuple(rng.choice(names, rng.integers(1, len(names) + 1), replace=False))
            for _ in sizes
        ]
        want, got = (
            executable.run(
                [SequenceRows(s[i], x, w, o) for s, x, w, o in zip(states, given, wanted, asked, strict=True)]
            )
            for i, executable in enumerate((slow, fast))
        )
        for one, other, outputs in zip(got, want, asked, strict=True):
            assert isinstance(one, Mapping)
            assert set(one) == set(names if outputs is None else outputs)
            close(one, other)
        if any(spec.kind == "fixed" for spec in slow.plan.states.values()):  # pyright: ignore[reportAttributeAccessIssue]
            continue
        for both in states:
            for state in both:
                state.trim(max(state.position - 3, 0))


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("which", NETWORKS)
def test_a_tap_gives_what_a_network_cut_there_gives(which: str, name: str, rng: np.random.Generator) -> None:
    network = NETWORKS[which]()
    params, x = initialise(network, 3), rows(network, 6, rng)
    whole = compiled(network, name)
    taps = whole.run([SequenceRows(whole.new_state(), x, "all")])[0]
    assert isinstance(taps, Mapping)
    for output, coord in network.taps.items():
        if which == "loop" and output != "output":
            continue  # a cut loop computes something else
        layers = {at: spec for at, spec in network.layers.items() if at <= coord}
        links = tuple(link for link in network.links if {link.source, link.target} <= layers.keys())
        ports = {port: end for port, end in network.inputs.items() if end.coord in layers}
        cut = dataclasses.replace(network, layers=layers, links=links, inputs=ports, outputs={})
        executable = device(name).compile(lower(cut), params, OPTIONS)
        given = {port: x[port] for port in cut.ports}
        got = executable.forward(executable.new_state(), given, last_only=False)
        close({output: taps[output]}, {output: got})


@pytest.mark.parametrize("name", DEVICES)
def test_inputs_are_what_layers_would_read(name: str, rng: np.random.Generator) -> None:
    """Further inputs that replace, and add to, what a layer reads, by a network that is cut there."""
    network = cores()
    x = rows(network, 4, rng)
    executable = compiled(network, name)
    found = executable.run([SequenceRows(executable.new_state(), x, "all")])[0]
    assert isinstance(found, Mapping)
    layers = {Coord(0): network.layers[Coord(2)], Coord(1): network.layers[Coord(3)]}
    behind = Network(grid=Grid(2), layers=layers, input_shape=(WIDTH,), input_dtype="float32")
    params = initialise(network, 3)
    own = {
        key: params[
            key.replace("1.0.0.0", "3.0.0.0").replace("0.0.0.0/", "2.0.0.0/", 1)
            if key.startswith("0.")
            else "3.0.0.0" + key[7:]
        ]
        for key in behind.param_specs()
    }
    alone = device(name).compile(lower(behind), type(params)(own), OPTIONS)
    want = alone.forward(alone.new_state(), x["instead"], last_only=False)
    close({"cell": found["cell"]}, {"cell": want})
    silent = dict(x, late=np.zeros_like(x["late"]))
    without = dataclasses.replace(network, inputs={"instead": network.inputs["instead"]})
    plain = device(name).compile(lower(without), params, OPTIONS)
    got = executable.forward(executable.new_state(), silent, last_only=False)
    rest = {port: x[port] for port in without.ports}
    close({"y": got}, {"y": plain.forward(plain.new_state(), rest, last_only=False)})


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_greedy_decoding_beside_taps_gives_the_same_tokens(name: str) -> None:
    plain = tiny_llama()
    tapped = dataclasses.replace(plain, outputs={"middle": Coord(1, slot=5), "hidden": Coord(3)})
    found = []
    for network in (plain, tapped):
        executable = compiled(network, name)
        states = [executable.new_state() for _ in range(2)]
        executable.run(
            [SequenceRows(state, np.arange(n, dtype=np.int32), "none") for state, n in zip(states, (4, 7), strict=True)]
        )
        stream = executable.greedy(states, [5, 6])
        found.append(list(islice(stream, 6)))
        stream.close()
    assert found[0] == found[1]
    executable = compiled(llama(), name)
    with pytest.raises(UnsupportedError, match="the network has the inputs input, features, types"):
        next(executable.greedy([executable.new_state()], [5]))


@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("which", ["llama", "cores", "two_way"])
def test_graphs_of_whole_sequences_have_all_inputs_and_outputs(
    which: str, count: int | None, rng: np.random.Generator
) -> None:
    network = NETWORKS[which]()
    params = initialise(network, 3)
    graphs = NumpyGraphs()
    store = graphs.store()
    for key in network.param_specs():
        store.write(key, params[key].values())
    x = [rows(network, 4, rng) for _ in range(count or 1)]
    given = [np.stack([one[name] for one in x]) if count else x[0][name] for name in network.ports]
    made = graphs.compile(graph_of(network, 4, sequences=count), store).run(given)
    slow = compiled(network, "reference")
    for i, one in enumerate(x):
        want = slow.run([SequenceRows(slow.new_state(), one, "all")])[0]
        close(dict(zip(network.taps, [y[i] if count else y for y in made], strict=True)), want)


@pytest.mark.parametrize("name", DEVICES)
def test_a_call_with_wrong_names_or_rows_changes_no_state(name: str, rng: np.random.Generator) -> None:
    network = llama()
    executable = compiled(network, name)
    state, x = executable.new_state(), rows(network, 3, rng)
    wrong = [
        (x["input"], None, ShapeError, "has the inputs input, features, types, got one array"),
        ({"input": x["input"], "types": x["types"]}, None, ShapeError, "got nothing for features"),
        ({**x, "colour": x["types"]}, None, ShapeError, "got also colour"),
        (
            {**x, "types": x["types"][:2]},
            None,
            ShapeError,
            "the same number of rows, got 3 of input, 3 of features, 2 of",
        ),
        ({**x, "types": x["features"]}, None, ShapeError, r"the input types reads int32 \[T\]"),
        ({**x, "features": x["features"][:, :5]}, None, ShapeError, r"the input features reads float32 \[T, 32\]"),
        ({**x, "types": x["types"] + 3}, None, GenerationError, "outside of the vocabulary of 3"),
        (x, ("logits",), SpecError, "unknown output 'logits'"),
        (x, "output", SpecError, "must be a tuple of names"),
        (x, (), SpecError, "must be a tuple of names"),
    ]
    for given, outputs, error, match in wrong:
        with pytest.raises(error, match=match):
            executable.run([SequenceRows(state, given, "last", outputs)])  # pyright: ignore[reportArgumentType]
    assert state.position == 0
