"""A byte-level BPE vocabulary small enough to write by hand: all bytes, a few merges, two control tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_tokenizer import read_tokenizer
from volumetric.loaders.gguf_write import write_gguf
from volumetric.loaders.tokenizer import Tokenizer

PREFIX = "tokenizer.ggml."
MERGES = ["a b", "ab c", "1 2", "12 3", "123 4", "Ġ a", "e Ì"]
BYTES = sorted(ByteLevel.alphabet())
TOKENS = ["<s>", "</s>", "<note>", *BYTES, *(merge.replace(" ", "") for merge in MERGES)]


def metadata(pre: str = "gpt-2", **changes: Any) -> dict[str, Any]:
    """Metadata of a GGUF file with this tokenizer; a change of None removes a key."""
    values: dict[str, Any] = {
        "model": "gpt2",
        "pre": pre,
        "tokens": TOKENS,
        "token_type": np.array([3, 3, 4] + [1] * (len(TOKENS) - 3), np.int32),
        "merges": MERGES,
        "bos_token_id": np.uint32(0),
        "eos_token_id": np.uint32(1),
    }
    return {PREFIX + key: value for key, value in (values | changes).items() if value is not None}


def tokenizer(home: Path, pre: str = "gpt-2", **changes: Any) -> Tokenizer:
    """The tokenizer as it comes back from a GGUF file."""
    write_gguf(home / "t.gguf", metadata(pre, **changes), {})
    found = read_tokenizer(GGUFFile(home / "t.gguf"), "t.gguf")
    assert found is not None
    return found
