"""SentencePiece tokenizers of GGUF files against ids that the sentencepiece package gave for the same pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.loaders import Tokenizer
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_tokenizer import read_tokenizer
from volumetric.loaders.gguf_tokenizer_export import tokenizer_metadata
from volumetric.loaders.gguf_write import write_gguf
from volumetric.loaders.tokenizer_files import read_tokenizer_files

MODEL = json.loads((Path(__file__).parent / "data" / "sentencepiece_bpe.json").read_text(encoding="utf-8"))
BYTE = 6
BYTES = [f"<0x{value:02X}>" for value in range(256)]
TOKENS = [*MODEL["head"], *BYTES, *MODEL["pieces"]]


def tokenizer(home: Path, **changes: Any) -> Tokenizer:
    """The tokenizer of a GGUF file; a change of None removes a key."""
    values: dict[str, Any] = {
        "model": "llama",
        "tokens": TOKENS,
        "token_type": np.array([*MODEL["types"], *[BYTE] * 256, *[1] * len(MODEL["pieces"])], np.int32),
        "scores": np.array([0.0] * 260 + MODEL["scores"], np.float32),
        "unknown_token_id": np.uint32(0),
        "bos_token_id": np.uint32(1),
        "eos_token_id": np.uint32(2),
    } | changes
    given_values = {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}
    write_gguf(home / "t.gguf", given_values, {})
    found = read_tokenizer(GGUFFile(home / "t.gguf"), "t.gguf")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer(tmp_path_factory.mktemp("spm"))


@pytest.mark.parametrize("record", MODEL["texts"], ids=lambda record: repr(record["text"]))
def test_ids_and_text_are_those_of_sentencepiece(record: dict[str, Any], llama: Tokenizer) -> None:
    assert llama.encode(record["text"], add_special_tokens=False) == record["ids"]
    assert llama.encode(record["text"]) == [1, *record["ids"]]
    assert llama.decode(record["ids"]) == record["decoded"] == record["text"]
    decoder = llama.decoder()
    assert "".join(map(decoder.push, record["ids"])) + decoder.flush() == record["text"]


@given(text=st.text(alphabet="theandor \n<>é日🚀"))
def test_any_text_comes_back(text: str, llama: Tokenizer) -> None:
    assert llama.decode(llama.encode(text)) == text


def test_special_tokens_in_a_text(llama: Tokenizer) -> None:
    assert llama.encode("<s>a</s>", add_special_tokens=False)[0::2] == [1, 2]
    assert llama.decode(llama.encode("a<note>")) == "a<note>"


def test_flags_of_the_file(tmp_path: Path) -> None:
    bare = tokenizer(tmp_path, add_bos_token=False, add_eos_token=True, add_space_prefix=False)
    ids = bare.encode("the garden")
    assert ids[-1] == 2
    assert bare.token(ids[0]) == "t"  # and not "▁the"
    assert bare.decode(ids) == "the garden"
    assert bare.decode(bare.encode(" a")) == " a"


@pytest.mark.parametrize("scores", [None, np.zeros(3, np.float32), "high", np.zeros(len(TOKENS), np.int32)])
def test_scores_are_needed(scores: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="scores is missing or does not fit"):
        tokenizer(tmp_path, scores=scores).encode("a")


def test_they_are_written_again(llama: Tokenizer, tmp_path: Path) -> None:
    values = tokenizer_metadata(llama)
    kinds = values["tokenizer.ggml.token_type"]
    assert (kinds == np.array([*MODEL["types"], *[BYTE] * 256, *[1] * len(MODEL["pieces"])])).all()
    write_gguf(tmp_path / "again.gguf", values, {})
    again = read_tokenizer(GGUFFile(tmp_path / "again.gguf"), "again.gguf")
    assert again is not None
    for record in MODEL["texts"]:
        assert again.encode(record["text"]) == llama.encode(record["text"]) == [1, *record["ids"]]


def test_merges_that_follow_from_no_scores_are_refused(llama: Tokenizer, tmp_path: Path) -> None:
    """Byte-pair encoding of the tokenizers library's own trainer, whose pieces are made in one way alone."""
    state = json.loads(llama.to_json())
    merges = state["model"]["merges"]
    made = ["".join(merge) for merge in merges]
    last = next(i for i in range(len(made) - 1) if made[i] == made[i + 1])  # one of two ways to make a piece
    for changed in (merges[:last] + merges[last + 1 :], [*merges[:last], *merges[last + 1 :], merges[last]]):
        state["model"]["merges"] = changed
        (tmp_path / "tokenizer.json").write_text(json.dumps(state))
        found, _ = read_tokenizer_files(tmp_path)
        with pytest.raises(UnsupportedError, match="do not follow from scores"):
            tokenizer_metadata(found)
