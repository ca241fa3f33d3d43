"""Streams of fabrics whose nodes are masked between calls: nothing is compiled, state follows, forks and files."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.devices import device
from tests.fabric.dynamic_cases import CASES, Arrays, cut, given, masked
from tests.fabric.test_layer import alone
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.clocked import Clocked
from volumetric.fabric.layer.cell_populations import OutPort
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_sets import XBand
from volumetric.graph.program_cache import ProgramCache
from volumetric.layers import Dense
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore
from volumetric.observe.recorder import Recorder
from volumetric.run.streams.row_stream import SEAL, RowStream, StreamHeader
from volumetric.run.streams.stream_chunks import StreamChunk

WAYS = ("reference", "cpu", "rows on cpu", "gpu")


class Case(NamedTuple):
    spec: Fabric
    gone: tuple[int, ...]
    p: Arrays
    x: np.ndarray

    def after(self, rows: slice, memory: Memory, *, some: bool = False) -> np.ndarray:
        """Rows in NumPy, of all nodes or of those that are left."""
        p = masked(self.spec, self.p, self.gone) if some else self.p
        return oracle(self.spec).forward(p, self.x[:, rows].astype(np.float64), memory=memory)[0]

    def expected(self) -> np.ndarray:
        """Three rows of all nodes, three of those that are left, three of all, of which some begin anew."""
        memory = Memory(streams=2)
        parts = [self.after(slice(3), memory)]
        memory = Memory(3, memory.values, streams=2)
        parts.append(self.after(slice(3, 6), memory, some=True))
        parts.append(self.after(slice(6, 9), Memory(6, memory.values, streams=2)))
        return np.concatenate(parts, 1)


@cache
def case(way: str) -> Case:
    """What a way to run is tested with; programs of a software GPU take their time to compile."""
    spec, gone = CASES["plain" if "gpu" in way else "mixed"]
    p, x = given(spec, 9)
    return Case(spec, gone, p, x.astype(np.float32))


def params_of(p: Arrays) -> Params:
    return Params({f"0.0.0.0/{name}": WeightStore.from_array(value.astype(np.float32)) for name, value in p.items()})


@cache
def first(way: str) -> RowStream:
    """Streams on a device; "rows" are those through an executable."""
    network, params = alone(case(way).spec), params_of(case(way).p)
    if "rows" in way:
        return RowStream(device(way.removeprefix("rows on ")), network, params, batch=2)
    return device(way).stream(network, params, batch=2)


def opened(way: str) -> RowStream:
    """Streams that begin, with the programs that there are."""
    return first(way).fork()


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_nodes_are_masked_between_calls_and_nothing_is_compiled(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, stream = case(way), opened(way)
    x, want = of.x, of.expected()
    parts = [np.asarray(stream.run(x[:, :3]))]
    made: list[Any] = []
    get = ProgramCache.get
    monkeypatch.setattr(
        ProgramCache, "get", lambda self, name, make: get(self, name, lambda: made.append(name) or make())
    )
    stream.mask(of.gone)
    assert stream.living_nodes().tolist() == [node for node in range(12) if node not in of.gone]
    parts.append(np.asarray(stream.run(x[:, 3:6])))
    stream.unmask(of.gone[1:])
    stream.unmask(of.gone[0])
    parts.append(np.asarray(stream.run(x[:, 6:])))
    assert made == []
    np.testing.assert_allclose(np.concatenate(parts, 1), want, atol=3e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["reference", "cpu", "rows on cpu", "rows on gpu"])
def test_forks_and_files_have_their_own(way: str) -> None:
    of, stream = case(way), opened(way)
    x, want, plain = of.x, of.expected(), of.after(slice(9), Memory(streams=2))
    stream.run(x[:, :3])
    other = stream.fork()
    stream.mask(of.gone)
    np.testing.assert_allclose(np.asarray(other.run(x[:, 3:6])), plain[:, 3:6], atol=3e-5)
    np.testing.assert_allclose(np.asarray(stream.run(x[:, 3:6])), want[:, 3:6], atol=3e-5)
    np.testing.assert_allclose(np.asarray(other.run(x[:, 6:])), plain[:, 6:], atol=3e-5)
    network, params = alone(of.spec), params_of(of.p)
    again = device("reference" if way == "cpu" else "cpu").stream(network, params, batch=2)
    again.restore(stream.save())
    assert again.living_nodes().tolist() == stream.living_nodes().tolist()
    again.unmask(of.gone)
    np.testing.assert_allclose(np.asarray(again.run(x[:, 6:])), want[:, 6:], atol=3e-5)
    stream.reset()
    begun = of.after(slice(3), Memory(streams=2), some=True)
    np.testing.assert_allclose(np.asarray(stream.run(x[:, :3])), begun, atol=3e-5)


@pytest.mark.parametrize("way", ["reference", "cpu"])
def test_machines_mask_nodes_between_ticks(way: str) -> None:
    of = case("gpu")
    machine, params, want = Clocked(network=alone(of.spec)), params_of(of.p), of.expected()
    stream = device(way).stream(machine, params, batch=2)
    parts = [np.asarray(stream.run(of.x[:, :3]))]
    other = stream.fork()
    stream.mask(of.gone)
    again = device(way).stream(machine, params, batch=2)
    again.restore(stream.save())
    assert again.living_nodes().tolist() == stream.living_nodes().tolist() != other.living_nodes().tolist()
    parts.append(np.asarray(again.run(of.x[:, 3:6])))
    again.unmask(of.gone)
    parts.append(np.asarray(again.run(of.x[:, 6:])))
    np.testing.assert_allclose(np.concatenate(parts, 1), want, atol=3e-5)
    plain = of.after(slice(9), Memory(streams=2))
    np.testing.assert_allclose(np.asarray(other.run(of.x[:, 3:6])), plain[:, 3:6], atol=3e-5)
    fresh = stream.save()
    with pytest.raises(CheckpointError, match="not a saved stream"):
        stream.restore(b"x" * 100)
    assert stream.save() == fresh


def test_masks_of_the_parameters_are_those_that_streams_begin_with() -> None:
    for way in ("reference", "cpu"):
        of = case(way)
        stream = device(way).stream(alone(of.spec), params_of(masked(of.spec, of.p, of.gone)), batch=2)
        assert stream.living_nodes().size == 12 - len(of.gone)
        want = of.after(slice(3), Memory(streams=2), some=True)
        np.testing.assert_allclose(np.asarray(stream.run(of.x[:, :3])), want, atol=3e-5)


def test_what_does_not_fit_changes_nothing() -> None:
    of, stream = case("cpu"), opened("cpu")
    stream.mask(4)
    before = stream.save()
    odd: tuple[Any, ...] = (12, (4, -1), ("4",), (4.5,))
    for nodes in odd:
        with pytest.raises(SpecError, match="the fabric has no node"):
            stream.mask(nodes)
    with pytest.raises(SpecError, match=r"there is no fabric at '0\.0\.0\.1'"):
        stream.unmask(4, at="0.0.0.1")
    for key, ids in (("0.0.0.0/living", [12]), ("0.0.0.0/living", [10**30]), ("0.0.0.1/living", [])):
        header, body = SEAL.unpack(before, StreamHeader)
        header.masked[key] = ids
        with pytest.raises(CheckpointError, match="masks nodes at"):
            stream.restore(SEAL.pack(header, [body]))
    assert stream.save() == before
    plain = {name: value for name, value in of.p.items() if name != "living"}
    still = device("cpu").stream(alone(cut(of.spec, ())), params_of(plain))
    with pytest.raises(SpecError, match="cannot be masked"):
        still.mask(4)


def test_a_recorder_sees_what_its_stream_masks() -> None:
    of, stream = case("gpu"), device("cpu").stream(alone(case("gpu").spec), params_of(case("gpu").p), batch=2)
    recorder = Recorder(stream)
    made = [recorder.advance(StreamChunk(x={"input": of.x[:, :3]}, count=3))]
    stream.mask(of.gone)
    made.append(recorder.advance(StreamChunk(x={"input": of.x[:, 3:6]}, count=3)))
    np.testing.assert_allclose(np.concatenate([np.asarray(y) for y in made], 1), of.expected()[:, :6], atol=3e-5)
    awake = np.stack([frame.fired for frame in recorder.frames])
    assert awake[:3].all()
    assert (~awake[3:]).sum(1).tolist() == [len(of.gone)] * 3
    stream.unmask(of.gone[1:])
    recorder.close()
    assert stream.living_nodes().tolist() == [node for node in range(12) if node != of.gone[0]]


def test_a_fabric_that_is_switched_off_can_be_masked() -> None:
    spec = replace(case("gpu").spec, outputs=(OutPort("y", XBand("high"), 3),))
    layers = {Coord(0): Dense(in_features=3, out_features=3), Coord(0, 0, 1): spec}
    network = Network(
        grid=Grid(1, 1, 2), layers=layers, input_shape=(3,), input_dtype="float32", disabled=frozenset({Coord(0, 0, 1)})
    )
    x = case("gpu").x
    for way in ("cpu", "rows on cpu"):
        stream = RowStream(device("cpu"), network, initialise(network), batch=2)
        stream = device("cpu").stream(network, initialise(network), batch=2) if way == "cpu" else stream
        want = np.asarray(stream.run(x))
        stream.mask(4)
        assert 4 not in stream.living_nodes()
        np.testing.assert_array_equal(np.asarray(stream.run(x)), want)
