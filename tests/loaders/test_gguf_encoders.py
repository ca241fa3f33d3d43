"""Encoders in GGUF files: embeddings and tokens of the Hugging Face directory, and what other converters write."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.devices.named_devices import open_device
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.encoder_layers import network_up_to
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_sentences import read_gguf_sentences
from volumetric.loaders.gguf_tokenizer import CONTROL, NORMAL, PREFIX, UNUSED, read_tokenizer
from volumetric.loaders.gguf_tokenizer_export import tokenizer_metadata
from volumetric.loaders.gguf_values import LazyStrings
from volumetric.loaders.gguf_write import write_gguf
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.run.lower import lower

TINY = Path(__file__).parents[1] / "fixtures" / "hf_encoders"
KNOWN: dict[str, Any] = json.loads((TINY / "sentences_mean" / "embeddings.json").read_text())
TEXTS = [*KNOWN["texts"], "[CLS] the [MASK]\u2581## cat", "na\u00efve\t\x00 \u0130stanbul\u00ad", "a" * 101]


def with_tokenizer(case: str, home: Path) -> Path:
    """A fixture beside the files of another that say how texts become embeddings."""
    shutil.copytree(TINY / case, home / case)
    for file in ("tokenizer.json", "tokenizer_config.json", "modules.json", "1_Pooling/config.json"):
        (home / case / file).parent.mkdir(exist_ok=True)
        shutil.copy(TINY / "sentences_mean" / file, home / case / file)
    return home / case


@pytest.mark.parametrize(
    ("case", "architecture"),
    [
        ("bert", "bert"),
        ("roberta_masked", "bert"),
        ("distilbert_masked", "bert"),
        ("modernbert", "modern-bert"),
        ("modernbert_masked", "modern-bert"),
        ("nomic_bert_masked", "nomic-bert"),
    ],
)
def test_hidden_states_are_those_of_the_directory(case: str, architecture: str, tmp_path: Path) -> None:
    convert_model(TINY / case, tmp_path / "m.gguf")
    convert_model(tmp_path / "m.gguf", tmp_path / "hf", format="hf")
    assert GGUFFile(tmp_path / "m.gguf").metadata["general.architecture"] == architecture
    ids = np.array([3, 17, 40, 5, 21, 9, 33, 58, 2, 11, 30], np.int32)
    given = hidden_states(TINY / case, ids)
    assert np.array_equal(hidden_states(tmp_path / "m.gguf", ids), given)
    assert np.array_equal(hidden_states(tmp_path / "hf", ids), given)


def hidden_states(source: Path, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    model = open_model(source)
    network = model.network if model.hidden is None else network_up_to(model.network, model.hidden)
    executable = open_device("reference").compile(lower(network), model.params)
    return executable.forward(executable.new_state(), ids, last_only=False)


@pytest.mark.parametrize("case", ["sentences_mean", "nomic_bert", "bert_masked"])
def test_embeddings_are_those_of_the_directory(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = with_tokenizer(case, tmp_path) if case == "nomic_bert" else TINY / case
    convert_model(directory, tmp_path / "m.gguf")
    assert ("GGUF has no form for the masked language model head" in caplog.text) == case.endswith("masked")
    with (
        volumetric.load(directory, device="reference") as given,
        volumetric.load(tmp_path / "m.gguf", device="reference") as found,
    ):
        assert np.array_equal(found.embed(TEXTS), given.embed(TEXTS))
        if case == "sentences_mean":
            for prompt in ("document", "query"):
                reference = np.array(KNOWN[prompt])
                assert np.abs(found.embed(KNOWN["texts"], prompt_name=prompt) - reference).max() < 1e-5


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("to", ["hf", "native"])
def test_they_become_directories_again(to: Any, normalise: bool, tmp_path: Path) -> None:
    directory = with_tokenizer("nomic_bert", tmp_path)
    shutil.copy(TINY / "sentences_mean" / "config_sentence_transformers.json", directory)
    if normalise:
        modules = json.loads((directory / "modules.json").read_text())
        modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
        (directory / "modules.json").write_text(json.dumps(modules))
    convert_model(directory, tmp_path / "m.gguf")
    convert_model(tmp_path / "m.gguf", tmp_path / "again", format=to)
    with (
        volumetric.load(directory, device="reference") as before,
        volumetric.load(tmp_path / "again", device="reference") as after,
    ):
        for name in ("document", "query"):
            assert np.array_equal(after.embed(TEXTS, prompt_name=name), before.embed(TEXTS, prompt_name=name))


def test_llama_cpp_gets_what_it_asks_for(tmp_path: Path) -> None:
    convert_model(TINY / "sentences_mean", tmp_path / "m.gguf")
    file = GGUFFile(tmp_path / "m.gguf")
    said = {key: file.metadata[key] for key in ("bert.pooling_type", "bert.attention.causal", "bert.context_length")}
    assert said == {"bert.pooling_type": 1, "bert.attention.causal": False, "bert.context_length": 40}
    ids = {
        name: file.metadata[f"{PREFIX}{name}_token_id"] for name in ("bos", "seperator", "unknown", "padding", "mask")
    }
    assert ids == {"bos": 2, "seperator": 3, "unknown": 1, "padding": 0, "mask": 4}
    assert file.metadata[PREFIX + "token_type_count"] == 2
    tokens = file.metadata[PREFIX + "tokens"]
    assert isinstance(tokens, LazyStrings)
    words = tokens.decode()
    assert words[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert "\u2581cat" in words
    assert not any(word.startswith("##") for word in words)
    assert file.entries["token_types.weight"].shape == (2, 16)


@pytest.mark.parametrize("case", ["bert", "nomic_bert"])
@pytest.mark.parametrize("dtype", ["float16", "int8:g32"])
def test_what_llama_cpp_adds_up_is_float32(case: str, dtype: str, tmp_path: Path) -> None:
    convert_model(TINY / case, tmp_path / "m.gguf", dtype=dtype)
    kinds = {name: entry.type for name, entry in GGUFFile(tmp_path / "m.gguf").entries.items()}
    assert {kinds.get(name, "F32") for name in ("token_types.weight", "position_embd.weight")} == {"F32"}
    assert kinds["token_embd.weight"] == {"float16": "F16", "int8:g32": "Q8_0"}[dtype]


def given_tokenizer() -> Tokenizer:
    tokenizer = open_model(TINY / "sentences_mean").tokenizer
    assert tokenizer is not None
    return tokenizer


def read(metadata: dict[str, Any], home: Path) -> Tokenizer:
    write_gguf(home / "t.gguf", {"general.architecture": "bert", **metadata}, {})
    found = read_tokenizer(GGUFFile(home / "t.gguf"), "t.gguf")
    assert found is not None
    return found


OTHERS = ("normalizer.lowercase", "normalizer.strip_accents", "pre", "add_bos_token", "add_sep_token")


@pytest.mark.parametrize("converter", ["older", "newer"])
def test_files_of_other_converters_are_read(converter: str, tmp_path: Path) -> None:
    given = given_tokenizer()
    metadata = tokenizer_metadata(given, 100)
    for name in OTHERS:
        del metadata[PREFIX + name]
    tokens, types = metadata[PREFIX + "tokens"], metadata[PREFIX + "token_type"]
    assert tokens[96:] == [f"\u2581[PAD{id}]" for id in range(96, 100)]
    assert (types[96:] == UNUSED).all()
    if converter == "older":  # which marked nothing in brackets, and named types less well
        metadata[PREFIX + "tokens"] = [t[1:] if t.startswith("\u2581[") and t.endswith("]") else t for t in tokens]
        types[types == CONTROL] = NORMAL
        metadata[PREFIX + "cls_token_id"] = metadata.pop(PREFIX + "bos_token_id")
    found = read(metadata, tmp_path)
    for text in TEXTS:
        assert found.encode(text) == given.encode(text), text
    assert found.special_tokens == {role: t for role, t in given.special_tokens.items() if role in found.special_tokens}
    assert found.decode(found.encode("the cat sat")) == given.decode(given.encode("the cat sat"))
    pair = [("the cat", "sat on")]
    assert found.encode_texts(pair, 24) == given.encode_texts(pair, 24)


def test_capitals_stay_where_the_vocabulary_has_some(tmp_path: Path) -> None:
    metadata = tokenizer_metadata(given_tokenizer(), 96)
    metadata[PREFIX + "tokens"] = [
        {"\u2581cat": "\u2581Cat"}.get(token, token) for token in metadata[PREFIX + "tokens"]
    ]
    cat = metadata[PREFIX + "tokens"].index("\u2581Cat")
    assert cat not in read(metadata, tmp_path).encode("Cat")
    del metadata[PREFIX + "normalizer.lowercase"], metadata[PREFIX + "normalizer.strip_accents"]
    assert read(metadata, tmp_path).encode("Cat") == [2, cat, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unknown_token_id": np.uint32(96)}, "unknown_token_id is 96, outside"),
        ({"normalizer.lowercase": "yes"}, "lowercase is 'yes'"),
        ({"tokens": ["a"] * 96}, "has a duplicate token"),
        ({"tokens": ["[PAD]"], "token_type": np.array([3], np.int32)}, "outside the vocabulary"),
        ({"token_type": np.ones(3, np.int32)}, "does not fit the 96 tokens"),
    ],
)
def test_damaged_vocabularies_are_explained(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    metadata = tokenizer_metadata(given_tokenizer(), 96) | {PREFIX + name: value for name, value in change.items()}
    with pytest.raises(CheckpointError, match=message):
        read(metadata, tmp_path).encode("the cat")


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({"bert.pooling_type": np.uint32(4)}, UnsupportedError, "ranking heads"),
        ({"bert.pooling_type": np.uint32(9)}, CheckpointError, "pooling_type is '9', expected 0 to 4"),
        ({"bert.pooling_type": [1, 2]}, CheckpointError, "pooling_type"),
        ({"bert.pooling_type": "mean"}, CheckpointError, "pooling_type is 'mean'"),
        ({"bert.pooling_type": np.uint32(1), "volumetric.embedding.normalise": "x"}, CheckpointError, "normalise"),
        ({"bert.pooling_type": np.uint32(1), "volumetric.embedding.default_prompt": "x"}, CheckpointError, "default"),
        ({"bert.pooling_type": np.uint32(1), "volumetric.embedding.default_prompt": [1]}, CheckpointError, "default"),
        (
            {"bert.pooling_type": np.uint32(1), "volumetric.embedding.prompt.x": np.uint32(1)},
            CheckpointError,
            "prompt.x",
        ),
    ],
)
def test_poolings_that_are_none_are_refused(
    metadata: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    metadata = {key: np.array(value) if isinstance(value, list) else value for key, value in metadata.items()}
    write_gguf(tmp_path / "p.gguf", {"general.architecture": "bert", **metadata}, {})
    with pytest.raises(error, match=message):
        read_gguf_sentences(GGUFFile(tmp_path / "p.gguf"), "p.gguf")


@pytest.mark.parametrize(("kind", "pooling"), [(1, "mean"), (2, "cls"), (3, "lasttoken")])
def test_a_pooling_alone_is_normalised_as_in_llama_cpp(kind: int, pooling: str, tmp_path: Path) -> None:
    metadata = {"general.architecture": "bert", "bert.pooling_type": np.uint32(kind)}
    write_gguf(tmp_path / "p.gguf", metadata, {})
    found = read_gguf_sentences(GGUFFile(tmp_path / "p.gguf"), "p.gguf")
    assert found is not None
    assert (found.pooling, found.normalise, found.prompts) == ((pooling,), True, {})


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "cannot store the pooling max"),
        ("config.json", {"hidden_act": "relu"}, "activation='relu': readers use 'gelu'"),
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}, "the normalizer of the tokenizer is 'Lowercase'"),
        ("tokenizer.json", {"post_processor": None}, "are not enclosed by cls_token and sep_token"),
    ],
)
def test_what_the_format_cannot_say_is_refused(file: str, change: dict[str, Any], message: str, tmp_path: Path) -> None:
    shutil.copytree(TINY / "sentences_mean", tmp_path / "m")
    path = tmp_path / "m" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UnsupportedError, match=message):
        convert_model(tmp_path / "m", tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize("case", ["sentences_dense", "bert_judge"])
def test_models_with_more_than_hidden_states_are_refused(case: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"after the pooling|classification head"):
        convert_model(TINY / case, tmp_path / "m.gguf")
