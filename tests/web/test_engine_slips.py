"""What callers pass by mistake to each method: an error whose sentence says what is wrong, and the network goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.generate.letters import loaded_letters, next_letter_logits
from tests.web.engine_page import EnginePage
from tests.web.handmade_networks import dense_network, ticking_network
from tests.web.static_server import write_json
from volumetric.web import export_network

_ADDRESS, _OPTION = "load() takes the address", "has no option"
_ROWS, _NUMBERS, _COPIED = "not an array of rows of 4", "must hold only numbers", "cannot hand on what was passed"
_WHOLE, _RANGE, _PROMPT = "takes whole numbers of 32 bits", "has 48 bytes", "A prompt is a text, a list of token ids"
_TOKEN, _CHAT, _SIGNAL, _STOP = "There is no token", "chat() takes a list of messages", "an AbortSignal", "stop must be"
_SLIPS = {
    "engine.load()": _ADDRESS,
    "engine.load(null)": _ADDRESS,
    "engine.load(5)": _ADDRESS,
    "engine.load({json: () => ({})})": _ADDRESS,
    "engine.load('http://[')": "is not an address",
    "engine.load(net + 'dense', {progress() {}})": _OPTION,
    "engine.load(net + 'dense', {onProgress: 5})": "onProgress must be a function",
    "engine.load(net + 'dense', {signal: {}})": _SIGNAL,
    "engine.load(net + 'dense', 5)": "load() takes its options as an object",
    "engine.load(net + 'page.json')": "is a page, not JSON",
    "engine.load({json: () => dense, piece: () => undefined}, {worker})": "piece(i) must return bytes, or base64",
    "rows.run()": "Input input is missing",
    "rows.run(5)": "Inputs are an array of numbers, or an object",
    "rows.run({inputs: [1, 2, 3, 4]})": 'The network has no input "inputs". It has: input.',
    "rows.run([1, 2, 3])": "has 3 numbers, but a row has 4",
    "rows.run([[1, 2], [3, 4]])": _ROWS,
    "rows.run([[1, 2, 3], [4, 5, 6, 7, 8]])": _ROWS,
    "rows.run([[[1, 2, 3, 4]]])": _ROWS,
    "rows.run([1, , 3, 4, 5])": _NUMBERS,
    "rows.run([1, '2', 3, 4])": _NUMBERS,
    "rows.run([1n, 2n, 3n, 4n])": _NUMBERS,
    "rows.run([[1, 2, 3, 4], 5])": _NUMBERS,
    "rows.run({input: new Set([1, 2, 3, 4])})": "must be an array of numbers",
    "worker ? rows.run(new Proxy([1, 2, 3, 4], {})) : rows.run({input: () => 4})": f"{_COPIED}|must be an array",
    "whole.run([1.5, 2, 3, 4])": _WHOLE,
    "whole.run([NaN, 2, 3, 4])": _WHOLE,
    "whole.run(Uint32Array.of(2 ** 31, 2, 3, 4))": _WHOLE,
    "rows.stream().step([1, 2, 3, 4])": "has no stream",
    "rows.generate([1]).next()": "does not generate text",
    "rows.embed('a')": "does not encode texts",
    "rows.write('w', [1, 2])": "write() takes a typed array",
    "rows.write('v', Float32Array.of(1))": 'no buffer "v"',
    "rows.write('w', new Float32Array(13))": _RANGE,
    "rows.write('w', Float32Array.of(1), 2)": _RANGE,
    "rows.write('w', Float32Array.of(1), 2 ** 40)": _RANGE,
    "rows.submit('rows 5')": 'no program "rows 5". It has: rows 4.',
    "rows.read('w', {bytes: 2 ** 40})": _RANGE,
    "rows.read('w', {bytes: 3})": _RANGE,
    "rows.read('w', {offset: -4})": _RANGE,
    "rows.read('w', {length: 4})": _OPTION,
    "ticks.run([1])": "has no run()",
    "ticks.stream().step([1, 2])": "A tick takes one row",
    "ticks.stream().step({y: [1]})": 'no input "y"',
    "letters.run([1])": "has no run(). Use generate() or logits().",
    "letters.generate().next()": _PROMPT,
    "letters.generate({role: 'user', content: 'a'}).next()": _PROMPT,
    "letters.generate('').next()": "The prompt is empty",
    "letters.generate([]).next()": "The prompt is empty",
    "letters.generate([9]).next()": _TOKEN,
    "letters.generate([1, 'a']).next()": _TOKEN,
    "letters.chat('a').next()": _CHAT,
    "letters.chat([]).next()": _CHAT,
    "letters.chat([{role: 'user'}]).next()": _CHAT,
    "letters.chat([{content: 'a'}]).next()": _CHAT,
    "letters.generate('a', {max_tokens: 3}).next()": _OPTION,
    "letters.generate('a', {temprature: 3}).next()": _OPTION,
    "letters.generate('a', {maxTokens: '3'}).next()": 'maxTokens must be a whole number of 1 or more, got "3"',
    "letters.generate('a', {temperature: -1}).next()": "temperature must be",
    "letters.generate('a', {topP: 2}).next()": "topP must be",
    "letters.generate('a', {seed: 2 ** 53}).next()": "Pass numbers above 2⁵³ as BigInt",
    "letters.generate('a', {stop: 5}).next()": _STOP,
    "letters.generate('a', {stop: ''}).next()": _STOP,
    "letters.generate('a', {signal: {}}).next()": _SIGNAL,
    "letters.logits(5)": _PROMPT,
    "letters.encode()": _PROMPT,
    "letters.decode('abc')": "decode() takes a list of token ids",
    "letters.decode([1.5])": _TOKEN,
}
"""Expression → part of the message of its InputError (or FormatError); with "|", either."""
_RUN = """
globalThis.net = net, globalThis.worker = worker;
globalThis.dense = await (await fetch(net + "dense/network.json")).json();
for (const [name, folder] of Object.entries({rows: "dense", whole: "whole", ticks: "ticks", letters: "letters"}))
  globalThis[name] = await engine.load(net + folder, {worker});
const unlike = [];
for (const [slip, text] of Object.entries(slips)) {
  let error = null;
  try {
    await (0, eval)(slip);
  } catch (one) {
    error = one;
  }
  const known = error instanceof engine.InputError || error instanceof engine.FormatError;
  if (!known || !text.split("|").some(one => error.message.includes(one))) unlike.push([slip, String(error)]);
}
let text = "";
for await (const token of letters.generate("a")) text += token;
const still = [await rows.run([[1, 2, 3, 4], Uint8Array.of(5, 6, 7, 8)]), await ticks.stream().step([1]), text];
for (const one of [rows, whole, ticks, letters]) { await one.close(); await one.close(); }
const after = [];
const messages = [{role: "user", content: "a"}];
for (const call of [() => rows.run([1, 2, 3, 4]), () => ticks.stream().step(), () => letters.chat(messages).next()])
  after.push(await call().then(() => "no error", error => error.message));
class Renamed extends engine.InputError {} // as bundlers do
return {unlike, still, after, name: new Renamed("").name};
"""


@pytest.mark.parametrize("worker", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_slips(engine: EnginePage, worker: bool) -> None:
    for name in ("dense", "whole", "ticks"):
        (engine.folder / name).mkdir()
    _, weights = dense_network(engine.folder / "dense", np.random.default_rng(8))
    dense_network(engine.folder / "whole", np.random.default_rng(9))
    network = json.loads((engine.folder / "whole" / "network.json").read_text())
    network["inputs"]["input"]["dtype"] = "int32"
    write_json(engine.folder / "whole" / "network.json", network)
    ticking_network(engine.folder / "ticks")
    export_network(loaded_letters(next_letter_logits()), engine.folder / "letters")
    (engine.folder / "page.json").write_text("<!doctype html><title>Not here</title>")
    engine.expects_complaints = True  # Chromium reports requests that fail
    result = engine.run(_RUN, slips=_SLIPS, worker=worker)
    assert result["unlike"] == []
    rows, tick, text = result["still"]
    x = np.arange(1, 9, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(rows["output"].reshape(2, 2), x @ weights[:8].reshape(2, 4).T + weights[8:], rtol=1e-5)
    assert (tick["y"].tolist(), text) == ([5], "bcdefgh")
    assert result["name"] == "InputError"
    assert result["after"] == ["The network is closed. Load it again."] * 3


_ABORTS = """
const m = await engine.load(net + "letters", {worker}), reasons = [];
const failed = async work => reasons.push(await work().then(() => "no error", error => error.name));
await failed(() => m.generate("a", {signal: AbortSignal.abort()}).next());
await failed(async () => {
  const controller = new AbortController();
  for await (const token of m.generate("a", {signal: controller.signal})) if (token.index === 1) controller.abort();
});
await failed(() => engine.load(net + "letters", {worker, signal: AbortSignal.abort()}));
for await (const token of m.generate("b")) if (token.index === 1) break;
const whole = async prompt => {
  let text = "";
  for await (const token of m.generate(prompt)) text += token;
  return text;
};
const both = await Promise.all([whole("a"), whole("c")]);
const open = m.generate("a");
await open.next();
const closed = m.close();
await failed(async () => { for await (const token of open) void token; });
await closed;
return {reasons, both};
"""


@pytest.mark.parametrize("worker", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_generations_are_ended_and_take_turns(engine: EnginePage, worker: bool) -> None:
    export_network(loaded_letters(next_letter_logits()), engine.folder / "letters")
    result = engine.run(_ABORTS, worker=worker)
    assert result["reasons"] == ["AbortError", "AbortError", "AbortError", "EngineError"]
    assert result["both"] == ["bcdefgh", "defgh"]


def test_unknown_characters_are_the_unknown_token(engine: EnginePage) -> None:
    export_network(loaded_letters(next_letter_logits()), engine.folder / "letters")
    path = engine.folder / "letters" / "tokenizer.json"
    script = "const m = await engine.load(net + 'letters'); const ids = await m.encode('azb'); m.close(); return ids"
    assert engine.run(script) == [0, 8, 1]
    model = json.loads(path.read_text())
    model["model"]["unk_token"] = None
    write_json(path, model)
    failure = engine.failure(script)
    assert (failure.name, "no token for a part of the text" in failure.message) == ("InputError", True)
