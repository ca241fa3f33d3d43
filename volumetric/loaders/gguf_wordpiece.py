"""WordPiece in GGUF files, which mark the start of a word by U+2581; vocab.txt marks its continuation by ``##``.

llama.cpp puts the mark before each word and repeatedly takes the longest token that fits: the same tokens as with
BERT's vocabulary. A word that tokens cannot cover is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.loaders.wordpiece_files import build_wordpiece

if TYPE_CHECKING:
    import tokenizers

    from volumetric.loaders.tokenizer import Tokenizer

START: Final = "\u2581"
CONTINUED: Final = "##"
LONGEST_WORD: Final = 100
"""Maximum characters of a word in BERT's tokenizer; longer words are unknown."""
ROLES: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "cls_token": (("bos", "cls"), 101),
    "sep_token": (("seperator", "eos"), 102),
    "unk_token": (("unknown",), 100),
    "pad_token": (("padding",), 0),
    "mask_token": (("mask",), 103),
}
"""Role → keys of its id, in order of priority, and the default id; names as spelled in the format."""


def plain_words(tokens: Sequence[str], raw: set[int]) -> list[str]:
    """Return the tokens of a file in the form of vocab.txt.

    Parameters
    ----------
    raw : ids of tokens without a mark; not needed for tokens in brackets, which have no mark in older files either
    """

    def plain(id: int, token: str) -> str:
        if token.startswith(START):
            return token.removeprefix(START)
        return token if id in raw or (token.startswith("[") and token.endswith("]")) else CONTINUED + token

    return [plain(id, token) for id, token in enumerate(tokens)]


def mark_words(tokens: Sequence[str], raw: set[int]) -> list[str]:
    """Inverse of `plain_words`."""

    def marked(id: int, token: str) -> str:
        if id in raw:
            return token
        return token.removeprefix(CONTINUED) if token.startswith(CONTINUED) else START + token

    return [marked(id, token) for id, token in enumerate(tokens)]


def rebuilt(
    vocabulary: dict[str, int], roles: Mapping[str, str], *, lowercase: bool | None, strip_accents: bool | None
) -> tokenizers.Tokenizer:
    """Build the tokenizer of a file.

    Parameters
    ----------
    lowercase : None if the file does not contain it, as most files. llama.cpp then lowercases; this package does so
        unless the vocabulary has words with capital letters, which could never match.
    strip_accents : None: the same as `lowercase`
    """
    if lowercase is None:
        special = set(roles.values())
        words = (word for word in vocabulary if word not in special and not word.startswith("["))
        lowercase = not any("A" <= letter <= "Z" for word in words for letter in word)
    return build_wordpiece(vocabulary, roles, lowercase=lowercase, strip_accents=strip_accents)


def wordpiece_metadata(tokenizer: Tokenizer, tokens: Sequence[str], raw: set[int]) -> dict[str, Any]:
    """Return the metadata of a WordPiece tokenizer in addition to types and lengths, by keys without their prefix.

    Parameters
    ----------
    tokens : text of each id
    raw : ids of tokens that are matched before a text is split into words

    Raises
    ------
    UnsupportedError
        Readers would split texts differently than this tokenizer.
    """
    state = json.loads(tokenizer.to_json())
    normalizer, roles = state.get("normalizer") or {}, tokenizer.special_tokens
    fixed = {
        "the normalizer": (normalizer.get("type"), "BertNormalizer"),
        "clean_text": (normalizer.get("clean_text"), True),
        "handle_chinese_chars": (normalizer.get("handle_chinese_chars"), True),
        "the pre-tokenizer": ((state.get("pre_tokenizer") or {}).get("type"), "BertPreTokenizer"),
        "continuing_subword_prefix": (state["model"].get("continuing_subword_prefix"), CONTINUED),
        "max_input_chars_per_word": (state["model"].get("max_input_chars_per_word"), LONGEST_WORD),
    }
    for name, (actual, expected) in fixed.items():
        if actual != expected:
            raise UnsupportedError(
                f"GGUF cannot store that {name} of the tokenizer is {actual!r}: readers use {expected!r}",
                hint="use format native or hf",
            )
    ids = {role: id for role in ROLES if (id := tokenizer.token_id(roles.get(role))) is not None}
    if tokenizer.encode("") != [ids.get("cls_token"), ids.get("sep_token")]:
        raise UnsupportedError(
            "GGUF cannot store that texts are not enclosed by cls_token and sep_token", hint="use format native or hf"
        )
    words = mark_words(tokens, raw)
    if plain_words(words, raw) != list(tokens):
        raise UnsupportedError(
            f"GGUF marks words by {START}, but tokens of the vocabulary contain it",
            hint="use format native or hf",
        )
    accents = normalizer.get("strip_accents")
    lowercase = bool(normalizer.get("lowercase"))
    values: dict[str, Any] = {
        "model": "bert",
        "pre": "default",
        "tokens": words,
        "normalizer.lowercase": np.bool_(lowercase),
        "normalizer.strip_accents": np.bool_(lowercase if accents is None else accents),
        "add_bos_token": np.bool_(True),
        "add_sep_token": np.bool_(True),
    }
    values |= {f"{keys[0]}_token_id": np.uint32(ids[role]) for role, (keys, _) in ROLES.items() if role in ids}
    values["cls_token_id"] = values["bos_token_id"]  # llama.cpp has read either key
    return values
