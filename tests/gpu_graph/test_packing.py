"""Small persistent tensors side by side: they read and write as each alone does, in as many launches as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.suites.program.cases import Canvas
from tests.devices import device, graphs
from tests.program.test_guards import watching
from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.devices.gpu.graph.store import FEW, PACKED, SMALL
from volumetric.graph import Graph, GraphBuilder
from volumetric.network import initialise

RNG = np.random.default_rng(6)


def values(count: int) -> dict[str, Array]:
    return {f"s{n}": RNG.standard_normal((2, n + 1)).astype(np.float32) for n in range(count)}


def stepped(held: dict[str, Array]) -> Graph:
    """What is held doubles, but for the first; the third is read before and behind that."""
    work = GraphBuilder()
    read = {key: work.stored_tensor(key, value.shape) for key, value in held.items()}
    before = work.affine(read["s2"], 1.0, 1.0)
    after = read["s2"]
    for key, i in list(read.items())[1:]:
        made = work.assign(key, work.affine(i, 2.0, 0.0))
        after = made if key == "s2" else after
    return work.finish([before, work.affine(after, 3.0, 0.0), work.concat([*(read[key] for key in ("s0",))], 0)])


def test_what_lies_side_by_side_is_read_and_written_as_alone() -> None:
    held = values(FEW + 3) | {"large": RNG.standard_normal((SMALL + 1,)).astype(np.float32)}
    found: list[Any] = []
    for together in (True, False):
        store = graphs("gpu").store()
        for key in [] if together else held:
            store.write(key, held[key])
        if together:
            store.write_together(held)
        assert (store.packed is not None) is together
        program = graphs("gpu").compile(stepped(held), store)
        runs = [program.run([]) for _ in range(2)]
        store.write("s4", held["s4"])
        runs.append([store.get(key) for key in held])
        assert sorted(store.keys()) == sorted(held)
        found.append((runs, len(program.recording.entries)))
    for one, other in zip(found[0][0], found[1][0], strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(found[0][0][2][4], held["s4"])
    np.testing.assert_array_equal(found[0][0][2][5], 4 * held["s5"])


def test_a_store_keeps_what_lies_side_by_side_to_itself() -> None:
    held, store = values(FEW), graphs("gpu").store()
    store.write_together(held)
    with pytest.raises(SpecError, match="part of a packed buffer"):
        store.share(["s1"])
    with pytest.raises(ShapeError):
        store.write("s1", np.zeros(3, np.float32))
    shared = store.share([])
    shared.write_together(held)
    shared.write("s1", 0 * held["s1"])
    np.testing.assert_array_equal(store.get("s1"), held["s1"])
    store.drop("s1")
    np.testing.assert_array_equal(store.get("s2"), held["s2"])
    store.close()
    few = graphs("gpu").store()
    few.write_together(values(FEW - 1))
    assert few.packed is None
    few.write_together(held)
    few.close()
    shared.close()
    assert PACKED not in set(shared.keys())


@pytest.mark.thorough
def test_streams_of_many_meters_reset_fork_and_save() -> None:
    """As on a CPU, with as many launches a call for twice as many regions."""
    x = RNG.standard_normal((2, 4, 3)).astype(np.float32)
    resets = np.array([[0, 0, 0, 0], [0, 0, 1, 0]])
    found: dict[str, list[Array]] = {}
    for name in ("cpu", "gpu"):
        network = watching(FEW)
        stream = device(name).stream(network, initialise(network, seed=1), batch=2)
        made = [stream.run(x), stream.run(x, resets=resets)]
        fork, saved = stream.fork(), stream.save()
        made += [fork.run(x), stream.run(-x)]
        stream.restore(saved)
        stream.reset([0])
        found[name] = [*made, stream.run(x)]
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    launches: list[int] = []
    for count in (FEW, 2 * FEW):
        canvas = Canvas(count)
        network = canvas.program("edge", "clocked").network()
        stream = device("gpu").stream(network, initialise(network, seed=1))
        stream.run(canvas.rows(1))
        [program] = stream._programs
        launches.append(len(program.recording.entries))
    assert launches[0] == launches[1]
