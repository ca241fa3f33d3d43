"""Every way in which loading and running fails: the error's class, what it says, and what to do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.web.engine_page import EngineFailure, EnginePage
from tests.web.handmade_networks import dense_network
from tests.web.static_server import write_json

_LOAD = "const m = await engine.load(net, {worker: false}); await m.close(); return 0"


def _damage(engine: EnginePage, change: Callable[[dict[str, Any]], object]) -> EngineFailure:
    """Change network.json; return the error of loading it."""
    network, _ = dense_network(engine.folder, np.random.default_rng(2))
    network = copy.deepcopy(network)
    change(network)
    write_json(engine.folder / "network.json", network)
    return engine.failure(_LOAD)


def _set(*path: Any) -> Callable[[dict[str, Any]], object]:
    """Return a change that sets a value at a place."""
    *inner, last, value = path

    def change(network: Any) -> None:
        for key in inner:
            network = network[key]
        network[last] = value

    return change


_BUFFER = ("variants", 0, "buffers", 3)
_PROGRAM = ("variants", 0, "programs", "rows 4", 0, "dispatches", 0)
_JSON = [
    (_set("format", "other"), "FormatError", "not a network.json of volumetric"),
    (_set("version", 2), "FormatError", "reads up to 1"),
    (_set("version", "1"), "FormatError", "version must be a whole number"),
    (_set("kind", "__proto__"), "FormatError", "unknown kind"),
    (_set("pieces", 0, "file", "https://elsewhere.example/x"), "FormatError", "pieces[0]"),
    (_set("pieces", 0, "file", "../secret"), "FormatError", "pieces[0]"),
    (_set("pieces", 0, "bytes", 2**40), "FormatError", "pieces[0]"),
    (_set(*_BUFFER, "parts", 0, 1, 10**6), "FormatError", "outside of its pieces"),
    (_set(*_BUFFER, "bytes", 2**33), "DeviceLimitError", "this GPU allows"),
    (_set(*_BUFFER, "bytes", 7), "FormatError", "buffers[3]"),
    (_set(*_BUFFER, "name", "input"), "FormatError", "the same name"),
    (_set("inputs", "input", "buffer", "absent"), "InputError", 'no buffer "absent"'),
    (_set("inputs", "input", "shape", [0]), "FormatError", "not a valid port"),
    (_set("calls", "programs", 0, "program", "constructor"), "FormatError", "no program"),
    (_set("variants", []), "FormatError", "no variants"),
    (_set("variants", 0, "needs", {"limits": {"maxBufferSize": 2**50}}), "DeviceLimitError", "lacks maxBufferSize"),
    (_set("variants", 0, "needs", {"features": ["shader-f16"]}), "DeviceLimitError", "lacks shader-f16"),
    (_set(*_PROGRAM, 0, 7), "FormatError", "no valid pipeline 7"),
    (_set(*_PROGRAM, 1, 0, 1, 99), "FormatError", "no buffer 99"),
    (_set(*_PROGRAM, 2, [1, 10**9, 1]), "FormatError", "a dispatch is not valid"),
    (_set(*_PROGRAM, 1, [[0, 0], [1, 2]]), "FormatError", "the browser refuses program"),
    (_set("modules", 0, "fn main( {"), "FormatError", "refuses the kernel “dense”"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("change", "name", "text"), _JSON, ids=[text for _, _, text in _JSON])
def test_damaged_descriptions(engine: EnginePage, change: Any, name: str, text: str) -> None:
    failure = _damage(engine, change)
    assert (failure.name, text in failure.message) == (name, True), failure.message


def test_files_that_are_missing_or_damaged(engine: EnginePage) -> None:
    missing = engine.failure(_LOAD)
    assert (missing.name, "answers 404" in missing.message, "one folder" in missing.message) == (
        "FetchError",
        True,
        True,
    )
    dense_network(engine.folder, np.random.default_rng(3))
    path = engine.folder / "weights-000.bin"
    piece = path.read_bytes()
    path.write_bytes(piece[:-1] + b"x")
    damaged = engine.failure(_LOAD)
    assert (damaged.name, "weights-000.bin is damaged" in damaged.message) == ("DamagedFileError", True)
    path.write_bytes(piece[:100])
    cut = engine.failure(_LOAD)
    assert (cut.name, f"not of {len(piece)} bytes: it is cut off" in cut.message) == ("DamagedFileError", True)
    (engine.folder / "network.json").write_text('{"format": ')
    half = engine.failure(_LOAD)
    assert (half.name, "network.json is not JSON" in half.message) == ("FormatError", True)
    engine.expects_complaints = True  # Chromium reports the 404


@pytest.mark.parametrize("ranges", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_broken_connections_are_resumed(engine: EnginePage, ranges: bool) -> None:
    _, weights = dense_network(engine.folder, np.random.default_rng(4 + ranges))
    engine.server.ranges = ranges
    engine.server.cuts["/net/weights-000.bin"] = [100, 50]
    loads = "const m = await engine.load(net, {worker: false, onProgress: one => { cached ||= one.cached === true; }});"
    result = engine.run(
        f"let cached = false; {loads} const y = await m.run(x); await m.close(); return {{y: y.output, cached}}",
        x=np.eye(4, dtype=np.float32),
    )
    np.testing.assert_allclose(result["y"].reshape(4, 2), weights[:8].reshape(2, 4).T + weights[8:], rtol=1e-6)
    wanted = [wanted for address, wanted in engine.server.requests if address == "/net/weights-000.bin"]
    assert (len(wanted), wanted[0], result["cached"]) == (3, None, False)
    assert all(one is not None and one.startswith("bytes=") for one in wanted[1:])
    assert engine.run(f"let cached = false; {loads} await m.close(); return cached") is True
    engine.expects_complaints = True  # Chromium reports connections that break


_WITHOUT = {
    "navigator.gpu": ("no WebGPU", "Object.defineProperty(navigator, 'gpu', {value: undefined, configurable: true})"),
    "an adapter": ("offers no GPU", "navigator.gpu.requestAdapter = async () => null"),
}


@pytest.mark.parametrize("absent", list(_WITHOUT))
def test_browsers_without(engine: EnginePage, absent: str) -> None:
    text, change = _WITHOUT[absent]
    dense_network(engine.folder, np.random.default_rng(5))
    failure = engine.failure(f"{change}; {_LOAD}")
    assert (failure.name, text in failure.message) == ("NoWebGPUError", True), failure.message
    assert "Chrome" in failure.message


def test_loading_is_cancelled(engine: EnginePage) -> None:
    dense_network(engine.folder, np.random.default_rng(6))
    failure = engine.failure(
        "const c = new AbortController();"
        "const onProgress = one => { if (one.stage === 'kernels') c.abort(); };"
        "await engine.load(net, {signal: c.signal, onProgress}); return 0"
    )
    assert failure.name == "AbortError"


@pytest.mark.thorough
@pytest.mark.parametrize("worker", [True, False])
def test_a_lost_gpu(engine: EnginePage, worker: bool) -> None:
    dense_network(engine.folder, np.random.default_rng(7))
    engine.run(
        "globalThis.m = await engine.load(net, {worker}); m.lost.then(error => { globalThis.lost = error.name; });"
        "await m.run([1, 2, 3, 4]); return 0",
        worker=worker,
    )
    engine.page.call("Browser.crashGpuProcess")
    failure = engine.failure(
        "for (let i = 0; i < 400; i++) {"
        "  await m.run([1, 2, 3, 4]);"
        "  await new Promise(done => setTimeout(done, 10));"
        "} return 0"
    )
    assert (failure.name, "Load the network again" in failure.message) == ("DeviceLostError", True), failure.message
    assert engine.run("return lost") == "DeviceLostError"
    again = "const n = await engine.load(net, {worker}); const y = await n.run([1, 2, 3, 4]); await n.close();"
    failures: list[str] = []
    while len(failures) < 20:  # the browser takes a moment to start another GPU process
        try:
            assert engine.run(f"{again} return y.output", worker=worker).shape == (2,)
            break
        except EngineFailure as error:
            failures.append(error.name)
    assert len(failures) < 20
    assert set(failures) <= {"NoWebGPUError", "DeviceLimitError", "DeviceLostError"}
