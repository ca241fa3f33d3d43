"""The engine in a browser, with networks written by hand: rows, streams, buffers, one thing at a time."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.web.engine_page import EnginePage
from tests.web.handmade_networks import dense_network, ticking_network, write_json
from tests.web.static_server import static_server


def test_rows_of_a_dense_network(engine: EnginePage) -> None:
    rng = np.random.default_rng(1)
    _, weights = dense_network(engine.folder, rng)
    x = rng.standard_normal((7, 4)).astype(np.float32)
    result = engine.run(
        """
        const stages = [];
        const m = await engine.load(net, {onProgress: one => stages.push(one.stage)});
        const all = await m.run({input: x});
        const [alone, both] = await Promise.all([m.run(x.subarray(4, 8)), m.run(Array.from(x))]);
        const refusals = [];
        for (const bad of [new Float32Array(3), {wrong: x}, {}, {input: "text"}]) {
          await m.run(bad).catch(error => {
            refusals.push([error.name, error instanceof engine.InputError, error.message]);
          });
        }
        const info = m.info;
        await m.close();
        await m.run(x).catch(error => refusals.push([error.name, false, error.message]));
        return {all: all.output, alone: alone.output, both: both.output, stages, refusals, info};
        """,
        x=x,
    )
    expected = x @ weights[:8].reshape(2, 4).T + weights[8:]
    np.testing.assert_allclose(result["all"].reshape(7, 2), expected, rtol=1e-5, atol=1e-6)
    assert (result["all"] == result["both"]).all()
    np.testing.assert_array_equal(result["alone"], result["all"][2:4])
    assert (result["stages"][0], result["stages"][-1]) == ("start", "ready")
    assert "weights" in result["stages"]
    assert result["info"]["device"]["software"] is not bool(os.environ.get("VOLUMETRIC_BROWSER_GPU"))
    assert [(name, known) for name, known, _ in result["refusals"]] == [("InputError", True)] * 4 + [
        ("EngineError", False)
    ]
    assert "a row has 4" in result["refusals"][0][2]


def test_streams_by_tick(engine: EnginePage) -> None:
    ticking_network(engine.folder)
    result = engine.run(
        """
        const m = await engine.load(net + "network.json", {worker: false});
        const one = m.stream(), two = m.stream();
        const seen = [];
        for (const x of [1, 2, 3]) seen.push((await one.step({x: [x]})).y[0]);
        for (const x of [10, 20]) seen.push((await two.step([x])).y[0]);
        seen.push((await one.step([0])).y[0]);
        await one.reset();
        seen.push((await one.step([1])).y[0], (await one.step({})).y[0], (await two.step([0])).y[0]);
        await two.close();
        const closed = await two.step([1]).catch(error => error.message);
        await m.write("x", Float32Array.of(4));
        await m.submit("tick");
        const y = new Float32Array(await m.read("y", {bytes: 4}))[0];
        await m.close();
        return {seen, closed, y};
        """
    )
    assert result["seen"] == [5, 4.5, 5.25, 14, 27, 2.625, 5, 3.5, 13.5]
    assert "closed" in result["closed"]


@pytest.mark.skipif("VOLUMETRIC_BROWSER_GPU" in os.environ, reason="it is about the software adapter")
def test_a_variant_is_chosen_by_what_the_adapter_is(engine: EnginePage) -> None:
    """The adapter of this browser computes on the CPU, has subgroups of 4, and no float16 in shaders.

    At last its lanes seem to be in another order than the invocations.
    """
    network, _ = dense_network(engine.folder, np.random.default_rng(1))
    [plain] = network["variants"]
    network["variants"] = [
        {**plain, "label": label, "needs": {"features": features, "subgroup": lanes, "limits": {}}}
        for label, features, lanes in (
            ("of 8", ["subgroups"], 8),
            ("unknown", ["another-adapter"], 0),
            ("for the CPU", ["fallback-adapter"], 0),
            ("of 2", ["subgroups"], 2),
            ("plain", [], 0),
        )
    ]
    write_json(engine.folder / "network.json", network)
    result = engine.run(
        """
        const adapter = await navigator.gpu.requestAdapter();
        const chosen = [];
        for (const hide of [[], ["fallback-adapter"], ["fallback-adapter", "subgroups", "shader-f16"]]) {
          const m = await engine.load(net, {hide});
          const y = (await m.run([1, 2, 3, 4])).output;
          chosen.push([m.info.variant, Array.from(y)]);
          await m.close();
        }
        const compile = GPUDevice.prototype.createShaderModule;
        GPUDevice.prototype.createShaderModule = function ({code}) {
          return compile.call(this, {code: code.replace("(size, lane)", "(size, lane ^ 1u)")});
        };
        const other = await engine.load(net, {hide: ["fallback-adapter"], worker: false});
        chosen.push([other.info.variant, Array.from((await other.run([1, 2, 3, 4])).output)]);
        GPUDevice.prototype.createShaderModule = compile;
        await other.close();
        const {subgroupMinSize, subgroupMaxSize} = adapter.info;
        return {chosen, lanes: [subgroupMinSize, subgroupMaxSize], half: adapter.features.has("shader-f16")};
        """
    )
    assert [label for label, _ in result["chosen"]] == ["for the CPU", "of 2", "plain", "plain"]
    assert len({tuple(y) for _, y in result["chosen"]}) == 1
    assert (result["lanes"], result["half"]) == ([4, 4], False)


@pytest.mark.thorough
def test_an_engine_of_another_host(engine: EnginePage) -> None:
    dense_network(engine.folder, np.random.default_rng(8))
    with static_server() as other:
        other.folders, other.shared = {"engine": engine.server.folders["engine"]}, True
        result = engine.run(
            "const own = await import(address); const m = await own.load(net);"
            "const y = await m.run([1, 2, 3, 4]); await m.close(); return y.output",
            address=f"{other.url}/engine/engine.js",
        )
    assert result.shape == (2,)
