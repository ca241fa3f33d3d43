"""Tokens for tests of grammars: the 256 bytes, and one that ends a text; their table is made in a millisecond."""

from __future__ import annotations

import tokenizers
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from volumetric.generate.grammar import GrammarTokens

END = 256


def byte_tokenizer() -> tokenizers.Tokenizer:
    """Return a tokenizer without merges."""
    found = tokenizers.Tokenizer(BPE({char: i for i, char in enumerate(sorted(ByteLevel.alphabet()))}, []))
    found.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    found.decoder = ByteDecoder()
    found.add_special_tokens(["<end>"])
    return found


def byte_tokens() -> GrammarTokens:
    """Return what grammars need of it."""
    return GrammarTokens(byte_tokenizer().to_str(), END + 1, (END,))
