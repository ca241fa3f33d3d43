"""Write SentencePiece's BPE vocabularies to GGUF files, where they are called ``llama``: pieces with scores.

A tokenizer.json has a list of merges instead of scores. If that list follows from scores, pieces get falling scores in
the order of their first appearance in it, and readers merge identically.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.loaders.sentencepiece_bpe import SPACE, merges_of, sentencepiece_bpe

if TYPE_CHECKING:
    import tokenizers

logger: logging.Logger = logging.getLogger(__name__)

BYTE: Final = re.compile(r"<0x[0-9A-F]{2}>")
"""Pieces for single bytes."""
HINT: Final = "use format native or hf"
PROBES: Final = (
    *("a", "", "a b", "a ", "a  b", "x\ta\nb\r\n", "a\u00a0b", "a\u3000b", "a\u2581", "a\u2581b", "1234,5 6"),
    *("\ufb01ne \u00bd", "\u0130s", "\u00e9 e\u0301", "\u65e5\u672c \u8a9e", "\uac00\u1100\u1161", "x\u00ad\u200by"),
    *("it's (so)-called", "\U0001f600\U0001f600 \U0001f469\u200d\U0001f4bb", "A\u0301\u0327B", "\u0e2a\u0e27\u0e31"),
)
"""Texts on which the rebuilt and the original tokenizer must agree."""
LED: Final = (" ", "  ", " a", "  a   b  ", "\u2581a", "\ta")
"""The same texts with leading spaces."""


def same_ids(one: tokenizers.Tokenizer, other: tokenizers.Tokenizer, texts: Iterable[str]) -> bool:
    """Whether two tokenizers split texts identically, except for special tokens around them."""

    def ids(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    return all(ids(one, text) == ids(other, text) for text in texts)


def sentencepiece_metadata(
    backend: tokenizers.Tokenizer, state: Mapping[str, Any], tokens: Sequence[str]
) -> dict[str, Any]:
    """Return the metadata of a BPE tokenizer with scores, by keys without their prefix.

    Parameters
    ----------
    backend, state : the tokenizer, and the content of its tokenizer.json
    tokens : tokens of the file, by id

    Raises
    ------
    UnsupportedError
        Readers would split texts differently than this tokenizer.
    """
    model = state["model"]
    vocabulary: Mapping[str, int] = model["vocab"]
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    ranked = list(dict.fromkeys(left + right for left, right in merges))
    expected = merges_of(vocabulary, ranked)
    if len(merges) != len(expected) or set(merges) != set(expected) or not _merges_are_grouped(merges):
        raise UnsupportedError("the merges of the tokenizer do not follow from scores of its pieces", hint=HINT)
    rebuilt = sentencepiece_bpe(vocabulary, ranked, unknown=model.get("unk_token"), prefix=False)
    prefix = _prefix(add_tokens(rebuilt, state), backend)
    places = {piece: rank for rank, piece in enumerate(ranked)}
    rest = len(ranked)  # pieces of one character, which are not merged, come last
    scores = np.array([-places.get(token, rest) for token in tokens], np.float32)
    return {"model": "llama", "pre": "default", "scores": scores, "add_space_prefix": np.bool_(prefix)}


def add_tokens(built: tokenizers.Tokenizer, state: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Add the added tokens of a tokenizer.json, as readers of GGUF files do."""
    from tokenizers import AddedToken

    added = [AddedToken(each["content"], special=each["special"], normalized=False) for each in state["added_tokens"]]
    built.add_tokens(added)
    return built


def _prefix(rebuilt: tokenizers.Tokenizer, backend: tokenizers.Tokenizer) -> bool:
    """Whether the tokenizer adds a leading space; `rebuilt` is the tokenizer that adds none."""
    from tokenizers import normalizers

    plain = rebuilt.normalizer
    with_space = normalizers.Sequence([normalizers.Prepend(SPACE), plain])
    for texts in ((*PROBES, *LED), PROBES):
        for prefix, normalizer in ((True, with_space), (False, plain)):
            rebuilt.normalizer = normalizer
            if same_ids(rebuilt, backend, texts):
                if texts is PROBES:
                    logger.warning("readers of GGUF files keep a leading space of a text, but this tokenizer drops it")
                return prefix
    raise UnsupportedError("GGUF cannot store how the tokenizer normalises texts and splits them into words", hint=HINT)


def _merges_are_grouped(merges: Sequence[tuple[str, ...]]) -> bool:
    """Whether all merges to a piece are contiguous."""
    pieces = ["".join(merge) for merge in merges]
    starts = [piece for piece, before in zip(pieces, [None, *pieces], strict=False) if piece != before]
    return len(starts) == len(set(starts))
