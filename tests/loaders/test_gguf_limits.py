"""GGUF export: what the format cannot say is refused, and rows of the embedding without a token get one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loaders.byte_bpe import TOKENS, tokenizer
from tests.loaders.tiny import copy, expected, logits, rewrite
from volumetric.base.errors import UnsupportedError
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_tokenizer import CONTROL, NORMAL, UNUSED, USER_DEFINED
from volumetric.loaders.gguf_tokenizer_export import tokenizer_metadata
from volumetric.loaders.gguf_values import LazyStrings

LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
WINDOW = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0, "layer_types": None}


@pytest.mark.parametrize(
    ("family", "config", "message"),
    [
        ("llama", {"hidden_act": "gelu"}, "activation='gelu': readers use 'silu'"),
        ("qwen2", {"hidden_act": "relu"}, "activation='relu'"),
        ("qwen3", {"hidden_act": "gelu_new"}, "activation='gelu_tanh'"),
        ("qwen2", WINDOW, "a window of 3 tokens at 1.0.0.1, but readers .* 'qwen2' use none\n.*--context 3 writes"),
        ("qwen3", WINDOW, "a window of 3 tokens"),
        ("qwen2", {"head_dim": 8}, "have square query projections: 4 heads of 8"),
        ("mistral", {}, "a window of 16 tokens at 1.0.0.1, but readers .* 'llama' use none"),
        ("qwen2", {"rope_scaling": None, "rope_parameters": LLAMA3}, "store the frequency scaling"),
        ("qwen3", {"attention_bias": True}, "no bias 'blk.0.attn_[qkvo]"),
    ],
)
def test_what_the_format_cannot_say_is_refused(
    family: str, config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    directory = copy(family, tmp_path, **config)

    def biases(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if "self_attn" in name and name.endswith("proj.weight")]:
            tensors[name.replace("weight", "bias")] = np.ones(tensors[name].shape[0], np.float32)

    def halves(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if "self_attn" in name]:
            half = tensors[name].shape[0] // 2
            tensors[name] = tensors[name][:, :32].copy() if ".o_proj" in name else tensors[name][:half].copy()

    changes = {"attention_bias": biases, "head_dim": halves}
    for change in [changes[key] for key in config if key in changes]:
        rewrite(directory, change)
    open_model(str(directory))  # it is a model: the format alone is short of something
    with pytest.raises(UnsupportedError, match=message):
        convert_model(str(directory), tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_window_beyond_the_context_is_none(tmp_path: Path) -> None:
    long = WINDOW | {"sliding_window": 4096, "max_position_embeddings": 4096}
    convert_model(str(copy("qwen2", tmp_path, **long)), tmp_path / "m.gguf")
    ids = expected("qwen2")["input_ids"]
    found, given = open_model(str(tmp_path / "m.gguf")), open_model(str(tmp_path / "qwen2"))
    np.testing.assert_allclose(logits(found, ids), logits(given, ids), rtol=1e-5, atol=1e-5)


def with_tokenizer(home: Path, rows: int) -> Path:
    """A tiny llama of `rows` embedding rows with a tokenizer of fewer tokens."""
    directory = copy("llama", home, vocab_size=rows, eos_token_id=1, bos_token_id=0, pad_token_id=None)

    def resize(tensors: dict[str, Any]) -> None:
        old = tensors["model.embed_tokens.weight"]
        tensors["model.embed_tokens.weight"] = np.resize(old, (rows, old.shape[1]))

    rewrite(directory, resize)
    (directory / "generation_config.json").unlink()
    tokenizer(home).save(directory / "tokenizer.json")
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return directory


def test_rows_without_a_token_get_one(tmp_path: Path) -> None:
    rows = len(TOKENS) + 5
    directory = with_tokenizer(tmp_path, rows)
    convert_model(str(directory), tmp_path / "m.gguf")
    metadata = GGUFFile(tmp_path / "m.gguf").metadata
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, LazyStrings)
    assert isinstance(types, np.ndarray)
    assert list(tokens.decode()) == [*TOKENS, *(f"[PAD{id}]" for id in range(len(TOKENS), rows))]
    assert list(types) == [CONTROL, CONTROL, USER_DEFINED] + [NORMAL] * (len(TOKENS) - 3) + [UNUSED] * 5
    given, found = open_model(str(directory)), open_model(str(tmp_path / "m.gguf"))
    assert given.tokenizer is not None
    assert found.tokenizer is not None
    assert found.tokenizer.vocab_size == given.tokenizer.vocab_size == len(TOKENS)
    text = f"[PAD{rows - 1}] abc"
    assert found.tokenizer.encode(text) == given.tokenizer.encode(text)
    assert found.tokenizer.decode([rows - 1]) == given.tokenizer.decode([rows - 1]) == ""
    ids = found.tokenizer.encode(text)
    np.testing.assert_array_equal(logits(found, ids), logits(given, ids))


def test_more_tokens_than_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"has {len(TOKENS)} tokens .* the embedding 9 rows"):
        tokenizer_metadata(tokenizer(tmp_path), 9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "normalises text by Lowercase"),
        ({"model.ignore_merges": True}, "words that no merges lead to"),
        ({"model.end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
    ],
)
def test_tokenizers_that_readers_would_not_rebuild(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Backend

    found = tokenizer(tmp_path)
    state = json.loads(found.to_json())
    for name, value in change.items():
        where = state["model"] if name.startswith("model.") else state
        where[name.removeprefix("model.")] = value
    found.backend = Backend.from_str(json.dumps(state))
    with pytest.raises(UnsupportedError, match=message):
        tokenizer_metadata(found)
