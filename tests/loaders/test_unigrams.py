"""SentencePiece's vocabularies in GGUF files, beside llama.cpp, sentencepiece and transformers on the same pieces."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.loaders import Tokenizer
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_tokenizer import PREFIX, read_tokenizer
from volumetric.loaders.gguf_tokenizer_export import tokenizer_metadata
from volumetric.loaders.gguf_write import write_gguf
from volumetric.loaders.tokenizer_files import read_tokenizer_files

HOME = Path(__file__).parents[1] / "fixtures" / "sentencepiece"
TEXTS: list[str] = json.loads((Path(__file__).parent / "data" / "nasty_texts.json").read_text(encoding="utf-8"))
BYTE_FALLBACK = 6
SPECIAL = "<s></s><unk>"
"""Part of a text that sentencepiece cuts otherwise: it does not look for special tokens."""


def odd(text: str) -> bool:
    """Whether unigrams cut a text as transformers does, and not as sentencepiece and llama.cpp.

    To those U+0085 is no space, and a text that starts with U+2581 gets another one.
    """
    return "\x85" in text or text.startswith("\u2581")


def fields(name: str) -> dict[str, Any]:
    return json.loads((HOME / f"{name}.json").read_text())


def metadata(name: str) -> dict[str, Any]:
    """What llama.cpp's converter writes for a model of sentencepiece."""
    known = fields(name)
    table = base64.b64decode(known["precompiled_charsmap"])
    values: dict[str, Any] = {
        "model": known["model"],
        "pre": "default",
        "tokens": known["tokens"],
        "scores": np.array(known["scores"], np.float32),
        "token_type": np.array(known["token_type"], np.int32),
        "add_space_prefix": known["add_space_prefix"],
        "remove_extra_whitespaces": known["remove_extra_whitespaces"],
        **{f"{key}_token_id": np.uint32(id) for key, id in known["ids"].items() if id >= 0},
        **({"precompiled_charsmap": np.frombuffer(table, np.int8)} if table else {}),
    }
    return {PREFIX + key: value for key, value in values.items()}


def read(values: dict[str, Any], home: Path) -> Tokenizer:
    write_gguf(home / "t.gguf", values, {})
    found = read_tokenizer(GGUFFile(home / "t.gguf"), "t.gguf")
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["t5", "xlm_roberta", "bytes", "plain", "llama"])
def test_ids_are_those_of_llama_cpp_and_sentencepiece(name: str, tmp_path: Path) -> None:
    known, found = fields(name), read(metadata(name), tmp_path)
    differs: dict[str, set[str]] = {"llama.cpp": set(), "sentencepiece": set()}
    for i, text in enumerate(TEXTS):
        ids = found.encode(text, add_special_tokens=False)
        for program, texts in differs.items():
            if ids != known[program][i]:
                texts.add(text)
    split = {text for text in TEXTS if odd(text)} if known["remove_extra_whitespaces"] else set()
    marked = {text for text in TEXTS if SPECIAL in text}
    assert marked <= differs["sentencepiece"] <= marked | split | {text for text in TEXTS if "<0x41>" in text}
    if name != "bytes":  # llama.cpp writes no bytes with unigrams, but the unknown token
        assert differs["llama.cpp"] <= split


def test_bytes_of_unigrams_come_back(tmp_path: Path) -> None:
    found = read(metadata("bytes"), tmp_path)
    for text in ("\U0001f680 a\u0e2a", "the<sep> end"):
        assert found.decode(found.encode(text)) == text
    unknown = fields("t5")["ids"]["unknown"]
    assert read(metadata("t5"), tmp_path).encode("\U00010400\U00010401 a")[1:2] == [unknown]  # one for both


@pytest.mark.parametrize("name", ["t5", "xlm_roberta", "llama"])
def test_what_transformers_writes_is_written_for_llama_cpp(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in ("tokenizer", "tokenizer_config"):
        shutil.copy(HOME / f"{name}.{kind}.json", tmp_path / f"{kind}.json")
    given, _ = read_tokenizer_files(tmp_path)
    assert given is not None
    written, wanted = tokenizer_metadata(given, given.vocab_size + 7), metadata(name)
    for key in ("model", "add_space_prefix", "remove_extra_whitespaces"):
        assert written.get(PREFIX + key, False) == wanted[PREFIX + key], key
    assert written[PREFIX + "tokens"][-7:] == [f"[PAD{given.vocab_size + i}]" for i in range(7)]
    if PREFIX + "precompiled_charsmap" in wanted:
        assert written[PREFIX + "precompiled_charsmap"].tobytes() == wanted[PREFIX + "precompiled_charsmap"].tobytes()
        scores = dict(zip(written[PREFIX + "tokens"], written[PREFIX + "scores"], strict=True))
        for token, score in zip(wanted[PREFIX + "tokens"], wanted[PREFIX + "scores"], strict=True):
            assert scores[token] == score, token
    found = read(written, tmp_path)
    led = [text for text in TEXTS if text.startswith((" ", "\u2581")) or "<s>" in text] if name == "llama" else []
    assert ("keep a leading space" in caplog.text) == bool(led)
    for text in TEXTS:
        if text not in led:
            assert found.encode(text) == given.encode(text), text
            assert found.decode(found.encode(text)) == given.decode(given.encode(text)), text
    assert {role: found.special_tokens.get(role) for role in given.special_tokens} == given.special_tokens
    # A tokenizer that was read is written again as it was.
    again = tokenizer_metadata(found, given.vocab_size + 7)
    assert again.keys() == written.keys()
    for key, value in written.items():
        np.testing.assert_array_equal(again[key], value, err_msg=key)


def test_tokens_around_a_text(tmp_path: Path) -> None:
    values, end = metadata("xlm_roberta"), fields("xlm_roberta")["ids"]["eos"]
    assert read(values, tmp_path).encode("a")[-1] == end  # unless the file says otherwise, as in llama.cpp
    assert read({**values, PREFIX + "add_eos_token": False}, tmp_path).encode("a")[-1] != end
    begin = fields("xlm_roberta")["ids"]["bos"]
    assert read({**values, PREFIX + "add_bos_token": True}, tmp_path).encode("a")[0] == begin


def test_rows_without_a_token_do_not_change_what_unknown_costs(tmp_path: Path) -> None:
    values = metadata("t5")
    count = len(values[PREFIX + "tokens"])
    more = {
        "tokens": [*values[PREFIX + "tokens"], *(f"[PAD{count + i}]" for i in range(5)), "<extra>"],
        "scores": np.append(values[PREFIX + "scores"], np.full(6, -10_000, np.float32)),
        "token_type": np.append(values[PREFIX + "token_type"], np.array([5] * 5 + [4], np.int32)),
    }
    plain, padded = read(values, tmp_path), read(values | {PREFIX + k: v for k, v in more.items()}, tmp_path)
    for text in (*TEXTS, f"a [PAD{count}] b"):
        assert padded.encode(text) == plain.encode(text)
    assert padded.encode("<extra>")[0] == count + 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": None}, "scores is missing"),
        ({"scores": np.full(300, np.nan, np.float32)}, "values that are not numbers"),
        ({"precompiled_charsmap": "x"}, "charsmap is not a list of bytes"),
        ({"precompiled_charsmap": np.arange(9, dtype=np.int32)}, "charsmap is not a list of bytes"),
        ({"precompiled_charsmap": np.arange(9, dtype=np.uint8)}, "damaged tokenizer|cannot be"),
        ({"add_space_prefix": "x"}, "add_space_prefix is 'x'"),
        ({"unknown_token_id": np.uint32(300)}, "outside the vocabulary"),
        (
            {"tokens": ["a"], "scores": np.zeros(1, np.float32), "token_type": np.ones(1, np.int32)},
            "outside the",
        ),
    ],
)
def test_damaged_vocabularies_are_explained(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    values = metadata("t5") | {PREFIX + key: value for key, value in change.items()}
    with pytest.raises(CheckpointError, match=message):
        read({key: value for key, value in values.items() if value is not None}, tmp_path).encode("a b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "normalises by Lowercase"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "splits them into words"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}}, "of the kind WordLevel"),
    ],
)
def test_what_the_format_cannot_say_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    state = json.loads((HOME / "t5.tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(state | change | {"added_tokens": []}))
    found, _ = read_tokenizer_files(tmp_path)
    with pytest.raises(UnsupportedError, match=message):
        tokenizer_metadata(found)
