"""Embeddings, scores, classes and masked tokens: those of sentence-transformers and transformers, in any company."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.devices import DEVICES, device
from volumetric.base.errors import CheckpointError, GenerationError, SpecError, UnsupportedError, VolumetricError
from volumetric.dtypes import decode
from volumetric.generate import Model
from volumetric.generate.encoder import Encoder
from volumetric.generate.hidden_states import HIDDEN, with_hidden
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import save_model
from volumetric.loaders.encoder_layers import network_up_to
from volumetric.run.device import SequenceRows
from volumetric.run.graph.network_graph import NATIVE
from volumetric.run.graph.partition import Partition
from volumetric.run.lower import lower

TINY = Path(__file__).parents[1] / "fixtures" / "hf_encoders"


@pytest.fixture(scope="module")
def models() -> Any:
    opened: dict[tuple[str, str], Model] = {}

    def get(name: str, device: str = "cpu") -> Model:
        if (name, device) not in opened:
            opened[name, device] = volumetric.load(TINY / name, device=device, threads=2 if device == "cpu" else None)
        return opened[name, device]

    yield get
    for model in opened.values():
        model.close()


def record(name: str, file: str) -> dict[str, Any]:
    return json.loads((TINY / name / file).read_text())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "device"),
    [("sentences_mean", d) for d in ("reference", "cpu", "gpu")] + [("sentences_dense", "cpu")],
)
def test_embeddings_are_those_of_sentence_transformers(models: Any, name: str, device: str) -> None:
    known, model = record(name, "embeddings.json"), models(name, device)
    for prompt in ("document", "query"):
        found = model.embed(known["texts"], prompt_name=prompt)
        assert found.dtype == np.float32
        reference = np.array(known[prompt])
        assert np.abs(found - reference).max() < 1e-5 * max(1.0, float(np.abs(reference).max()))
    assert np.array_equal(
        model.embed(known["texts"], prompt="the cat: "), model.embed(known["texts"], prompt_name="query")
    )


def test_a_text_has_the_same_embedding_in_any_company(models: Any) -> None:
    model = models("sentences_mean")
    texts = [" ".join(["the cat"] * n) for n in (1, 9, 2, 0, 5)] * 50
    whole = model.embed(texts)
    assert whole.shape == (250, 16)
    assert np.array_equal(whole[:5], whole[-5:])
    for i in range(5):
        assert np.array_equal(model.embed([texts[i]])[0], whole[i])
    assert model.embed([]).shape == (0, 16)


def test_options_stand_over_the_files(models: Any) -> None:
    model = models("sentences_dense")
    rows = model.embed(["the cat", "mat"])
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert not np.allclose(np.linalg.norm(model.embed(["the cat"], normalise=False), axis=1), 1, atol=1e-3)
    plain = models("sentences_mean")
    assert plain.embed(["the cat"], pooling=("cls", "lasttoken")).shape == (1, 32)
    long = "the cat sat on the mat"
    assert np.array_equal(plain.embed([long], max_length=4), plain.embed(["the cat"], max_length=9))


def test_decoders_embed_by_their_last_token(tmp_path: Path) -> None:
    home = tmp_path / "decoder"
    shutil.copytree(TINY.with_name("hf_tiny") / "qwen3", home)
    shutil.copytree(TINY / "sentences_mean" / "1_Pooling", home / "1_Pooling")
    for name in ("tokenizer.json", "tokenizer_config.json", "modules.json"):
        shutil.copy(TINY / "sentences_mean" / name, home)
    (home / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    texts = ["the cat", "sat on the mat"]
    with volumetric.load(home, device="cpu", threads=2) as model:
        found = model.embed(texts)
        words = model.tokenizer
    assert words is not None
    with volumetric.load(TINY.with_name("hf_tiny") / "qwen3", device="cpu", threads=2) as whole:
        head = decode(whole.params[f"{max(whole.network.layers)}/weight"].packed())
        for row, text in zip(found, texts, strict=True):
            logits = whole.logits(words.encode(text))[-1]
            assert np.abs(head @ row - logits).max() < 1e-4 * np.abs(logits).max()


def test_the_native_format_knows_where_hidden_states_end(tmp_path: Path, models: Any) -> None:
    texts = record("sentences_mean", "embeddings.json")["texts"]
    for name in ("sentences_mean", "bert_masked"):
        save_model(tmp_path / name, open_model(TINY / name), "native")
        with volumetric.load(tmp_path / name, device="cpu", threads=2) as model:
            assert np.allclose(model.embed(texts), models(name).embed(texts), atol=1e-5)


def test_what_is_not_said_by_files_is_told(models: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(TINY / "sentences_mean", bare)
    (bare / "modules.json").unlink()
    with volumetric.load(bare, device="reference") as model, caplog.at_level(logging.WARNING):
        found = model.embed(["the cat sat"])
        model.embed(["the cat sat"])
    assert np.allclose(found, models("sentences_mean").embed(["the cat sat"]), atol=1e-5)
    assert [r.message for r in caplog.records if "modules.json" in r.message] == [caplog.records[0].message]


def test_heads_judge_texts_and_pairs(models: Any) -> None:
    known, model = record("bert_judge", "answers.json"), models("bert_judge")
    outputs = np.array(known["texts_outputs"])
    chances = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    for found, row in zip(model.classify(known["texts"]), chances, strict=True):
        assert list(found) == [f"LABEL_{i}" for i in np.argsort(-row)]
        assert np.allclose(list(found.values()), np.sort(row)[::-1], atol=1e-5)
    scores = model.score([tuple(pair) for pair in known["pairs"]])
    assert np.abs(scores - known["pairs_outputs"]).max() < 1e-5  # also of pairs that were cut
    assert model.score([]).shape == (0, 3)


def test_a_single_output_is_a_score(models: Any, tmp_path: Path) -> None:
    one = tmp_path / "one"
    shutil.copytree(TINY / "bert_judge", one)
    known = record("bert_judge", "answers.json")
    raw = np.array(known["pairs_outputs"])
    for said, expected in (
        ("torch.nn.modules.activation.Sigmoid", 1 / (1 + np.exp(-raw))),
        ("torch.nn.modules.linear.Identity", raw),
    ):
        config = json.loads((TINY / "bert_judge" / "config.json").read_text())
        config["sentence_transformers"] = {"activation_fn": said}
        (one / "config.json").write_text(json.dumps(config))
        with volumetric.load(one, device="reference") as model:
            assert np.abs(model.score([tuple(pair) for pair in known["pairs"]]) - expected).max() < 1e-5


def test_masked_tokens_are_found(models: Any) -> None:
    known, model = record("bert_masked", "answers.json"), models("bert_masked")
    found = model.fill_mask(known["masked"], top_k=3)
    assert [[one.token for one in place] for place in found] == [[token for token, _ in best] for best in known["best"]]
    for place, best in zip(found, known["best"], strict=True):
        assert np.allclose([one.probability for one in place], [chance for _, chance in best], atol=1e-6)
    first = found[0][0]
    assert first.text.count("[MASK]") == 1
    assert first.text.startswith("the ")
    assert model.embed(["the cat"]).shape == (1, 32)  # its hidden states, without the head


def test_words_of_a_vocabulary_file_alone(tmp_path: Path, models: Any) -> None:
    home = tmp_path / "words"
    shutil.copytree(TINY / "sentences_mean", home)
    words = json.loads((home / "tokenizer.json").read_text())["model"]["vocab"]
    (home / "tokenizer.json").unlink()
    (home / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(words, key=words.__getitem__)))
    texts = record("sentences_mean", "embeddings.json")["texts"]
    with volumetric.load(home, device="reference") as model:
        assert np.allclose(model.embed(texts), models("sentences_mean").embed(texts), atol=1e-5)
    (home / "vocab.txt").write_text("one\ntwo\n")
    with (
        volumetric.load(home, device="reference") as model,
        pytest.raises(CheckpointError, match=r"vocab.txt has 2 lines, but none is"),
    ):
        model.embed(["a"])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.embed("text"), GenerationError, "must be a list of texts, got str"),
        (lambda m: m.embed([1]), GenerationError, r"\[0\] must be text, got int"),
        (lambda m: m.embed(["a", "\ud800"]), GenerationError, r"\[1\] contains '.ud800', half of a surrogate"),
        (lambda m: m.embed(["a"], pooling="sum"), SpecError, "unknown pooling 'sum'"),
        (lambda m: m.embed(["a"], prompt_name="other"), SpecError, "no prompt 'other'"),
        (lambda m: m.embed(["a"], max_length=41), SpecError, "max_length must be 1 to 40"),
        (lambda m: m.embed(["a"], max_length=2), GenerationError, "no room for a text"),
        (lambda m: m.score([("a", "b")]), GenerationError, "no classification head"),
        (lambda m: m.classify(["a"]), GenerationError, "no classification head"),
        (lambda m: m.fill_mask("a"), GenerationError, "no head that predicts masked tokens"),
        (lambda m: m.generate("a"), GenerationError, "is an encoder and cannot generate"),
    ],
)
def test_wrong_use_is_explained(models: Any, call: Any, error: type[VolumetricError], message: str) -> None:
    with pytest.raises(error, match=message):
        call(models("sentences_mean", "reference"))


def test_wrong_pairs_and_masks_are_explained(models: Any) -> None:
    judge, masked = models("bert_judge"), models("bert_masked")
    for pairs in ("ab", [("a",)], ["ab"], [("a", 1)]):
        with pytest.raises(GenerationError, match="pair"):
            judge.score(pairs)
    with pytest.raises(GenerationError, match=r"has no \[MASK\]"):
        masked.fill_mask("the cat")
    with pytest.raises(GenerationError, match="context holds 40"):
        masked.fill_mask("the [MASK] " * 30)
    with pytest.raises(SpecError, match="top_k"):
        masked.fill_mask("the [MASK]", top_k=0)


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        ("modules.json", "{}", CheckpointError, "not a list of 1 to 16 modules"),
        ("modules.json", '[{"type": "a.Transformer"}]', CheckpointError, "module 0 lacks a type or a path"),
        ("modules.json", '[{"type": "a.Transformer", "path": "../x"}]', CheckpointError, "outside the directory"),
        ("modules.json", '[{"type": "a.Transformer", "path": "/etc"}]', CheckpointError, "outside the directory"),
        ("modules.json", '[{"type": "a.WordEmbeddings", "path": ""}]', UnsupportedError, "modules WordEmbeddings"),
        ("modules.json", "[" * 100_000, CheckpointError, "is not JSON"),
        ("1_Pooling/config.json", None, CheckpointError, "config.json is missing"),
        ("1_Pooling/config.json", '{"pooling_mode": "sum"}', UnsupportedError, "pooling_mode 'sum'"),
        ("2_Dense/config.json", '{"in_features": 80, "out_features": 0}', CheckpointError, "out_features"),
        ("2_Dense/config.json", '{"in_features": 80, "out_features": 9}', CheckpointError, "wrong shape"),
        ("2_Dense/model.safetensors", None, CheckpointError, "neither model.safetensors nor pytorch_model.bin"),
        ("sentence_bert_config.json", '{"max_seq_length": -1}', CheckpointError, "max_seq_length"),
        (
            "config_sentence_transformers.json",
            '{"default_prompt_name": "x"}',
            CheckpointError,
            "not one of the prompts",
        ),
        ("config_sentence_transformers.json", '{"default_prompt_name": {}}', CheckpointError, "not one of the prompts"),
    ],
)
def test_damaged_files_are_named(
    file: str, content: str | None, error: type[VolumetricError], message: str, tmp_path: Path
) -> None:
    home = tmp_path / "model"
    shutil.copytree(TINY / "sentences_dense", home)
    if content is None:
        (home / file).unlink()
    else:
        (home / file).write_text(content)
    with pytest.raises(error, match=message):
        volumetric.load(home, device="reference")


def test_a_damaged_tokenizer_is_named(tmp_path: Path) -> None:
    home = tmp_path / "model"
    shutil.copytree(TINY / "sentences_mean", home)
    (home / "tokenizer.json").write_bytes((home / "tokenizer.json").read_bytes()[:2000])
    with (
        volumetric.load(home, device="reference") as model,
        pytest.raises(CheckpointError, match=r"tokenizer.json: the tokenizer cannot be built"),
    ):
        model.embed(["a"])


def test_numbers_that_are_none_are_told(tmp_path: Path) -> None:
    home = tmp_path / "model"
    shutil.copytree(TINY / "sentences_mean", home)
    data = bytearray((home / "model.safetensors").read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start:] = np.full((len(data) - start) // 4, np.nan, np.float32).tobytes()
    (home / "model.safetensors").write_bytes(data)
    with (
        volumetric.load(home, device="reference") as model,
        pytest.raises(GenerationError, match="embedding of text 0 contains NaN"),
    ):
        model.embed(["a"])


def test_embedding_and_filling_masks_share_one_network(models: Any) -> None:
    model = models("bert_masked")
    rows, logits = model.embed(["the cat"]), model.logits([3, 17, 2])
    assert model.text_encoder.encoder.executable is model.executable
    assert (rows.shape, logits.shape) == ((1, 32), (3, 96))


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_a_decoder_embeds_by_the_network_that_generates(name: str) -> None:
    texts = [np.array(ids, np.int32) for ids in ([3, 17, 2, 9], [5])]
    with volumetric.load(TINY.with_name("hf_tiny") / "llama", device=device(name)) as model:
        encoder, hidden = Encoder(model.loaded, model.executable), model.loaded.hidden
        assert hidden is not None
        pooled = encoder.pooled([{"input": ids} for ids in texts], ["lasttoken"])
        alone = network_up_to(dataclasses.replace(model.network, outputs={HIDDEN: hidden}), hidden)
        assert alone.taps.keys() == {"output"}
        executable = model.device.compile(lower(alone), model.params, model.executable.options)
        for ids, row in zip(texts, pooled, strict=True):
            # the bits of a network without the head, but on a GPU, where rows depend on their company
            [last] = executable.forward(executable.new_state(), ids)
            np.testing.assert_allclose(row, last, rtol=0, atol=1e-5 if name == "gpu" else 0)
            wanted = executable.forward(executable.new_state(), ids, last_only=False)
            # and all of it at once: the head reads what it does alone
            state = model.executable.new_state()
            both: Any = model.executable.run([SequenceRows(state, ids, "all")])[0]
            np.testing.assert_allclose(both[HIDDEN], wanted, rtol=0, atol=1e-5)
            np.testing.assert_allclose(both["output"], model.logits(ids), rtol=0, atol=1e-5 if name == "gpu" else 0)
        executable.close()


def test_heads_are_not_computed_where_hidden_states_are_wanted() -> None:
    loaded = open_model(TINY.with_name("hf_tiny") / "llama")
    cut = Partition(lower(with_hidden(loaded)), NATIVE)
    ops = [node.op for part in cut.segments for node in part.nodes]
    assert ops[-2:] == ["linear", "norm"]  # the head, with the norm of its own, and that of those who want it
    count = len(cut.uses)
    assert cut.needed_uses([cut.outputs["output"]]) == (range(count - 1),)
    assert cut.needed_uses([cut.outputs[HIDDEN]]) == (range(count - 2), range(count - 1, count))
    assert cut.needed_uses(cut.graph.outputs) == (range(count),)
    assert cut.needed_uses([]) == (range(cut.body),)
