"""A tokenizer without files: byte-level BPE of the 256 bytes and of as many pairs and triples as a vocabulary takes."""

from __future__ import annotations

import json
from itertools import islice, product
from typing import TYPE_CHECKING

from volumetric.loaders.byte_tokenizer import byte_tokenizer_json
from volumetric.loaders.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

END = "<|endoftext|>"
PRINTABLE = 94
"""Bytes of ASCII that byte-level vocabularies write as themselves."""


def byte_ids(vocabulary: int) -> range:
    """Return the ids of single bytes that are no printable ASCII: a model that says them may say what is no UTF-8."""
    start = (vocabulary - 1 - (256 - PRINTABLE)) // 2
    return range(start, start + 256 - PRINTABLE)


def synthetic_tokenizer(vocabulary: int) -> Tokenizer:
    """Return a tokenizer of `vocabulary` tokens, the last of which ends a text.

    Pairs and triples of printable ASCII characters merge, in their order. The other bytes are tokens side by side, see
    `byte_ids`.
    """
    state = json.loads(byte_tokenizer_json())
    symbols = list(state["model"]["vocab"])
    printable = [symbol for symbol in symbols if symbol.isascii()]
    pairs = list(product(printable, repeat=2))
    triples = ((first + second, third) for (first, second), third in product(pairs, printable))
    room = vocabulary - len(symbols) - 1
    merges = [*pairs[:room], *islice(triples, max(room - len(pairs), 0))]
    tokens = [*printable, *("".join(pair) for pair in merges)]
    start = byte_ids(vocabulary).start
    tokens[start:start] = [symbol for symbol in symbols if not symbol.isascii()]
    state["model"] |= {"vocab": {token: id for id, token in enumerate(tokens)}, "merges": [list(one) for one in merges]}
    state["pre_tokenizer"] |= {"use_regex": True}  # GPT-2's, which has a name in GGUF files
    id = len(tokens)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    state["added_tokens"] = [{"id": id, "content": END, "special": True, **flags}]
    text = json.dumps(state)

    def build() -> tokenizers.Tokenizer:
        from tokenizers import Tokenizer as Backend

        return Backend.from_str(text)

    return Tokenizer(build, special_tokens={"eos_token": END}, special_ids={END: id}, where="synthetic tokenizer")
