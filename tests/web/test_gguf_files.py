"""GGUF files behind a template: fetched once and in order, kept between visits, and refused where they do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.web.engine_page import EnginePage
from tests.web.gguf_networks import BULK, dense_template, write_dense
from tests.web.handmade_networks import dense_network
from tests.web.static_server import write_json

LOAD = """
const events = [];
const m = await engine.load(source(), {template: net + "template", onProgress: one => events.push(one), ...options});
const w = new Float32Array(await m.read("w")), bulk = new Float32Array(await m.read("bulk"));
const y = (await m.run([1, 0, 0, 0])).output;
await m.close();
return {w, bulk, y, events, info: m.info};
"""
SERVED = "() => net + 'model.gguf'"
OPENED = "() => file"


@pytest.fixture(autouse=True)
def _nothing_stored(engine: EnginePage) -> Iterator[None]:
    forget = "for (const {address} of await engine.storedModels()) await engine.forgetModel(address); return 0"
    engine.run(forget)
    yield
    engine.run(forget)


@pytest.fixture
def weights(engine: EnginePage) -> Any:
    """A template and a file for it, whose weights these are."""
    numbers = np.random.default_rng(5).standard_normal(10).astype(np.float32)
    dense_template(engine.folder / "template")
    write_dense(engine.folder / "model.gguf", numbers)
    return numbers


def visit(engine: EnginePage, weights: Any, source: str = SERVED, **options: Any) -> tuple[list[Any], list[str | None]]:
    """Load the file and check all that it fills; return the events, and the ranges that were asked of the server."""
    engine.server.requests.clear()
    result = engine.run(f"const source = {source};{LOAD}", options=options)
    np.testing.assert_array_equal(result["w"], [*weights, 0, 0])
    bulk = np.arange(BULK, dtype=np.float32)
    np.testing.assert_array_equal(result["bulk"], [*bulk, *-bulk])
    np.testing.assert_allclose(result["y"], weights[[0, 4]] + weights[8:], rtol=1e-6)
    assert (result["info"]["title"], result["info"]["origin"]["licence"]) == ("A dense file", "mit")
    wanted = [wanted for address, wanted in engine.server.requests if address == "/net/model.gguf"]
    return result["events"], wanted


def stored(engine: EnginePage) -> Any:
    return engine.run("return await engine.storedModels()")


def test_a_file_is_fetched_once(engine: EnginePage, weights: Any) -> None:
    size = (engine.folder / "model.gguf").stat().st_size
    events, wanted = visit(engine, weights)
    assert wanted == [None]
    assert list(dict.fromkeys(one["stage"] for one in events)) == ["start", "header", "weights", "kernels", "ready"]
    loaded = [one["loaded"] for one in events if one["stage"] in ("header", "weights")]
    assert loaded == sorted(loaded)
    assert (loaded[-1], events[-1]["total"], events[-1]["loaded"]) == (size, size, size)
    address = f"{engine.server.url}/net/model.gguf"
    assert stored(engine) == [{"address": address, "bytes": size, "complete": True}]
    events, wanted = visit(engine, weights)
    assert wanted == [f"bytes={size - 1}-"]  # asks whether it is the same, no more
    assert all(one["cached"] for one in events if one["stage"] == "header")
    assert engine.run("return await engine.forgetModel(net + 'model.gguf')") == size
    assert stored(engine) == []
    assert visit(engine, weights, worker=False)[1] == [None]
    assert visit(engine, weights, worker=False)[1] == [f"bytes={size - 1}-"]


def test_it_goes_on_where_an_earlier_visit_stopped(engine: EnginePage, weights: Any) -> None:
    address, half = "/net/model.gguf", 4 * BULK
    engine.server.cuts[address] = [half, 1000]
    first, *others = visit(engine, weights)[1]
    starts = [int(one.removeprefix("bytes=").removesuffix("-")) for one in others if one is not None]
    assert first is None
    assert len(starts) == len(others) == 2
    assert 0 < starts[0] <= half  # a browser may drop what it had when the connection broke
    assert starts[0] < starts[1] <= starts[0] + 1000
    engine.run("await engine.forgetModel(net + 'model.gguf'); return 0")
    engine.server.cuts[address] = [half, 0, 0, 0]
    bytes_stored = engine.run(
        """
        engine.load(net + "model.gguf", {template: net + "template"}).catch(() => {});
        for (let before = 0; ;) {
          await new Promise(done => setTimeout(done, 250));
          const [one] = await engine.storedModels();
          if (one?.bytes && one.bytes === before) return one;
          before = one?.bytes;
        }
        """
    )
    assert bytes_stored["complete"] is False
    assert bytes_stored["bytes"] <= half
    engine.open()  # the page is loaded again while it waits for the server
    engine.server.cuts.clear()
    events, wanted = visit(engine, weights)
    assert wanted == [f"bytes={bytes_stored['bytes']}-"]
    assert {(one["stage"], one["cached"]) for one in events if "cached" in one} == {
        ("header", True),
        ("weights", False),
    }
    engine.expects_complaints = True  # Chromium reports connections that break


@pytest.mark.thorough
def test_servers_without_ranges(engine: EnginePage, weights: Any) -> None:
    engine.server.ranges = False
    engine.server.cuts["/net/model.gguf"] = [4 * BULK]
    assert len(visit(engine, weights)[1]) == 2
    assert len(visit(engine, weights)[1]) == 1
    engine.server.marks = False  # nobody can say whether the file is the same
    visit(engine, weights)
    assert stored(engine) == []
    engine.expects_complaints = True


def test_a_changed_file_is_fetched_anew(engine: EnginePage, weights: Any) -> None:
    visit(engine, weights)
    write_dense(engine.folder / "model.gguf", weights + 1)
    events, wanted = visit(engine, weights + 1)
    assert wanted[1:] == [None]
    assert not any(one["cached"] for one in events if "cached" in one)
    path = engine.folder / "model.gguf"
    path.write_bytes(path.read_bytes()[:1000])
    assert "it is cut off" in engine.failure(f"const source = {SERVED};{LOAD}", options={}).message
    engine.expects_complaints = True  # Chromium reports the 416


def test_a_file_of_the_visitor(engine: EnginePage, weights: Any) -> None:
    engine.run("globalThis.file = new File([await (await fetch(net + 'model.gguf')).blob()], 'mine.gguf'); return 0")
    assert visit(engine, weights, OPENED)[1] == []
    assert visit(engine, weights, OPENED, worker=False)[1] == []
    assert stored(engine) == []


def test_a_file_that_is_stopped(engine: EnginePage, weights: Any) -> None:
    failure = engine.failure(
        "const stop = new AbortController();"
        "const onProgress = one => { if (one.stage === 'weights') stop.abort(); };"
        "await engine.load(net + 'model.gguf', {template: net + 'template', signal: stop.signal, onProgress})"
    )
    assert failure.name == "AbortError"
    assert visit(engine, weights)[1] != []


MISFITS = {
    "width": ({"width": 5}, "dense.width is 5 in the file and 4 in the template."),
    "words": ({"words": ("a", "c")}, "The elements of tokenizer.ggml.tokens are others"),
    "more words": ({"words": ("a", "b", "c")}, "tokenizer.ggml.tokens is an array of 3 of type 8 in the file and"),
    "shape": ({"weights": np.zeros(9, np.float32)}, "Tensor w is F32 [9] in the file and F32 [10] in the template."),
}


def test_what_does_not_fit_is_refused(engine: EnginePage, weights: Any) -> None:
    for changes, sentence in MISFITS.values():
        write_dense(engine.folder / "model.gguf", **{"weights": weights, **changes})
        failure = engine.failure(f"const source = {SERVED};{LOAD}", options={})
        assert failure.name == "FormatError"
        assert sentence in failure.message, failure.message
        assert "volumetric export model.gguf OUT --web --template" in failure.message
    write_dense(engine.folder / "model.gguf", weights)
    other = dense_template(engine.folder / "other")
    other["template"]["metadata"]["dense.depth"] = 2
    write_json(engine.folder / "other" / "network.json", other)
    two = "['nothing', 'other', 'template'].map(one => net + one)"
    engine.run(f"const m = await engine.load(net + 'model.gguf', {{template: {two}}}); await m.close(); return 0")
    none = engine.failure("await engine.load(net + 'model.gguf', {template: [net + 'other', net + 'other']})")
    assert none.message.count("dense.depth is absent in the file and 2 in the template.") == 2
    for source, sentence in (
        ("net + 'model.gguf'", "/: There is no template. The server answers 404"),
        ("net + 'template'", "This is a template for GGUF files"),
    ):
        failure = engine.failure(f"await engine.load({source})")
        assert sentence in failure.message, failure.message
    engine.expects_complaints = True  # Chromium reports the 404


FORWARDS = """
const of = async name => import(`${new URL(`../engine/${name}`, net)}`);
const { ForwardReader, ServedFile } = await of("gguf/ranged_file.js"), files = await of("stored_files.js");
const parts = [];
for (const visit of visits) {
  const file = new ServedFile(net + "bytes", files);
  await file.open();
  const reader = new ForwardReader(file);
  for (const [at, length] of visit) parts.push(await reader.read(at, length));
  await reader.end();
  await file.close();
}
const models = (await files.storedModels()).filter(one => one.address === net + "bytes");
await files.forgetModel(net + "bytes");
return {parts, models};
"""


def test_what_nobody_needs_is_not_fetched(engine: EnginePage) -> None:
    contents = np.random.default_rng(2).bytes(16 << 20)
    (engine.folder / "bytes").write_bytes(contents)
    far, end = 9 << 20, len(contents) - 50
    visits = [[[3, 100], [far, 1000], [end, 50]], [[0, 10], [7 << 20, 200], [end, 50]]]
    result = engine.run(FORWARDS, visits=visits)
    for (at, length), part in zip([*visits[0], *visits[1]], result["parts"], strict=True):
        assert part.tobytes() == contents[at : at + length]
    assert result["models"] == [{"address": f"{engine.server.url}/net/bytes", "bytes": len(contents), "complete": True}]
    wanted = [wanted for address, wanted in engine.server.requests if address == "/net/bytes"]
    left_out = f"bytes={7 << 20}-"  # by the first visit, so the second one fetches it
    rest = f"bytes={end}-"
    assert wanted == [None, f"bytes={far}-", rest, f"bytes={len(contents) - 1}-", left_out, rest]


def test_chat_templates_of_files(engine: EnginePage) -> None:
    """A file's own counts, and tokens that end a turn in it end answers."""
    chats = [None, "{{ messages }}<|im_end|>", "no end"]
    network = {"language": {"chat_template": "x", "eos": [7]}, "template": {"ends": {"<|im_end|>": 3, "</s>": 7}}}
    result = engine.run(
        """
        const { networkFor } = await import(`${new URL("../engine/gguf/template.js", net)}`);
        return chats.map(chat => {
          const header = { value: key => (key === "tokenizer.chat_template" ? chat ?? undefined : undefined) };
          return networkFor(network, header, "f.gguf").language;
        });
        """,
        chats=chats,
        network=network,
    )
    assert result == [{"chat_template": chat, "eos": [7, 3] if chat == chats[1] else [7]} for chat in chats]


@pytest.mark.thorough
def test_pieces_of_exports_go_on_inside(engine: EnginePage) -> None:
    _, weights = dense_network(engine.folder, np.random.default_rng(40))
    address, size = "/net/weights-000.bin", (engine.folder / "weights-000.bin").stat().st_size
    load = "const m = await engine.load(net, {worker}); const w = new Float32Array(await m.read('w')); await m.close();"
    for worker in (True, False):
        engine.server.requests.clear()
        engine.server.cuts[address] = [100, 0, 0, 0]
        assert engine.failure(f"{load} return w", worker=worker).name == "FetchError"
        assert stored(engine) == [{"address": f"{engine.server.url}/net/", "bytes": 100, "complete": False}]
        np.testing.assert_array_equal(engine.run(f"{load} return w", worker=worker)[:10], weights)
        wanted = [wanted for where, wanted in engine.server.requests if where == address]
        assert wanted == [None] + ["bytes=100-"] * 4
        assert engine.run("return await engine.forgetModel(net)") == size
    engine.expects_complaints = True  # Chromium reports connections that break


def test_what_is_stored_and_damaged_is_fetched_anew(engine: EnginePage) -> None:
    network, weights = dense_network(engine.folder, np.random.default_rng(40))
    [piece] = network["pieces"]
    engine.run(
        """
        const { storeFile } = await import(`${new URL("../engine/stored_files.js", net)}`);
        const store = await storeFile(piece.sha256, {address: net, size: piece.bytes});
        await store.write(new Uint8Array(bytes));
        await store.close();
        return 0;
        """,
        piece=piece,
        bytes=piece["bytes"] // 2,
    )
    load = "const m = await engine.load(net); const w = new Float32Array(await m.read('w')); await m.close(); return w"
    np.testing.assert_array_equal(engine.run(load)[:10], weights)


def test_a_file_that_is_being_stored_is_not_forgotten(engine: EnginePage) -> None:
    result = engine.run(
        """
        const { storeFile } = await import(`${new URL("../engine/stored_files.js", net)}`);
        const store = await storeFile("key", {address: net + "x.gguf", size: 10});
        const refusal = await engine.forgetModel(net + "x.gguf").catch(error => error.message);
        await store.write(new Uint8Array(4));
        await store.close();
        return [refusal, await engine.forgetModel(net + "x.gguf")];
        """
    )
    assert "x.gguf is being loaded, so it cannot be forgotten." in result[0]
    assert result[1] == 4
