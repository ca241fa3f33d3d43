"""The tokenizer of networks that read bytes: token n is the byte n, for every text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volumetric.loaders.byte_tokenizer import byte_tokenizer_json
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.loaders.tokenizer_files import read_tokenizer_files


def opened(home: Path) -> Tokenizer:
    (home / "tokenizer.json").write_bytes(byte_tokenizer_json())
    tokenizer, _ = read_tokenizer_files(home)
    assert tokenizer is not None
    return tokenizer


@pytest.mark.thorough
def test_every_text_is_its_bytes(tmp_path_factory) -> None:
    tokenizer = opened(tmp_path_factory.mktemp("bytes"))

    @given(st.text())
    def check(text: str) -> None:
        ids = tokenizer.encode(text)
        assert bytes(ids) == text.encode()
        assert tokenizer.decode(ids) == text

    check()


def test_every_byte_has_a_token(tmp_path: Path) -> None:
    tokenizer = opened(tmp_path)
    for text in ("\x00\x01\t\n ", "  two  spaces ", "ÀÿĀ€🎈"):
        assert tokenizer.decode(list(text.encode())) == text
