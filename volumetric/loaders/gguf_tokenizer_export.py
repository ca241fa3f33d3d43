"""Describe a byte-level BPE or WordPiece tokenizer in the metadata of a GGUF file."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.gguf_tokenizer import (
    CONTROL,
    ENDS,
    MAX_LENGTH,
    NORMAL,
    PRE_TOKENIZERS,
    PREFIX,
    ROLES,
    UNUSED,
    USER_DEFINED,
    pre_tokenizer_of,
)
from volumetric.loaders.gguf_wordpiece import wordpiece_metadata
from volumetric.loaders.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

logger = logging.getLogger(__name__)

FORMATS: Final = "use format native or hf"


def generation_metadata(generation: GenerationDefaults, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """GGUF metadata of begin, end and padding ids: the inverse of `generation_ids`.

    The format has room for three ends; what is more is left to the chat template, and logged.
    """
    first = None if tokenizer is None else tokenizer.eos_id
    ends = sorted(generation.eos_ids, key=lambda id: (id != first, id))
    if len(ends) > len(ENDS):
        logger.warning("GGUF holds three end-of-text ids; left out: %s", ends[len(ENDS) :])
    named = [*zip(ENDS, ends, strict=False), ("bos", generation.bos_id), ("padding", generation.pad_id)]
    return {f"{PREFIX}{name}_token_id": np.uint32(id) for name, id in named if id is not None}


def tokenizer_metadata(tokenizer: Tokenizer | None, rows: int = 0) -> dict[str, Any]:
    """Return the GGUF metadata from which `read_tokenizer` and llama.cpp rebuild a tokenizer, or that there is none.

    Parameters
    ----------
    rows : rows of the embedding. llama.cpp takes the number of tokens for it, so ids without a token get one without
        use, ``[PAD7]``, as its own converter names them.

    Raises
    ------
    UnsupportedError
        It is neither BERT's WordPiece nor byte-level BPE with one of the pre-tokenizers that GGUF files name, or it has
        more tokens than `rows`.
    """
    if tokenizer is None:
        return {PREFIX + "model": "no_vocab"}
    state = json.loads(tokenizer.to_json())
    if state["model"].get("byte_fallback"):
        raise UnsupportedError(
            "a SentencePiece tokenizer cannot be written to GGUF: its scores are not kept",
            hint=FORMATS,
        )
    kind = state["model"]["type"]
    vocabulary: dict[str, int] = dict(state["model"].get("vocab", {})) if kind in ("BPE", "WordPiece") else {}
    added = {token["content"]: token for token in state["added_tokens"]}
    vocabulary |= {content: token["id"] for content, token in added.items()}
    if kind != "WordPiece":
        _check_form(tokenizer, state)
    names = {id: token for token, id in vocabulary.items()}
    count = max(rows, 1 + max(names, default=-1))
    if len(names) < len(vocabulary) or not names or count > (rows or 2 * len(names)):
        raise UnsupportedError(
            f"the tokenizer has {len(vocabulary)} tokens with ids up to {count - 1}, the embedding {rows} rows",
            hint="GGUF wants one token for each row",
        )
    tokens = [names.get(id, f"[PAD{id}]") for id in range(count)]
    types = [_type(added.get(token)) if id in names else UNUSED for id, token in enumerate(tokens)]
    if kind == "WordPiece":
        own = wordpiece_metadata(tokenizer, tokens, {id for id, kind in enumerate(types) if kind == CONTROL})
    else:
        own = _byte_level(tokenizer, state, tokens)
    return {PREFIX + name: value for name, value in {**own, "token_type": np.array(types, np.int32)}.items()}


def _byte_level(tokenizer: Tokenizer, state: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    """What a file says of byte-level BPE beside types, by keys without their prefix."""
    values: dict[str, Any] = {
        "model": "gpt2",
        "pre": _kind_of(tokenizer.backend),
        "tokens": tokens,
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in state["model"]["merges"]],
    }
    for name, role in ROLES.items():
        id = tokenizer.token_id(tokenizer.special_tokens.get(role))
        if id is not None:
            values[f"{name}_token_id"] = np.uint32(id)
    around = tokenizer.encode("a")
    values["add_bos_token"] = tokenizer.bos_id is not None and around[:1] == [tokenizer.bos_id]
    if tokenizer.eos_id is not None and around[-1:] == [tokenizer.eos_id]:
        values["add_eos_token"] = True
    values["add_space_prefix"] = False
    return values


def length_metadata(tokenizer: Tokenizer | None, asked: int | None, context: int) -> dict[str, Any]:
    """Return how many tokens of a text count, where the model sees more.

    Parameters
    ----------
    asked : what stands over the tokenizer's own limit
    """
    limit = asked or (None if tokenizer is None else tokenizer.max_length)
    return {MAX_LENGTH: np.uint32(limit)} if limit is not None and limit < context else {}


def _check_form(tokenizer: Tokenizer, state: Mapping[str, Any]) -> None:
    """Raise `UnsupportedError` for what readers would not do: another normalizer, marks in words."""
    kind = _kind_of(tokenizer.backend)
    normalizer = (state.get("normalizer") or {}).get("type")
    expected = ("NFC", None) if kind == "qwen2" else (None,)
    if normalizer not in expected:
        raise UnsupportedError(f"GGUF cannot say that the tokenizer normalises text by {normalizer}", hint=FORMATS)
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if state["model"].get(name):
            raise UnsupportedError(f"GGUF cannot say that the tokenizer has {name}", hint=FORMATS)
    if bool(state["model"].get("ignore_merges")) != (kind == "llama-bpe"):
        raise UnsupportedError(f"GGUF cannot say what {kind} does with words that no merges lead to", hint=FORMATS)


def _type(added: Mapping[str, Any] | None) -> int:
    if added is None:
        return NORMAL
    return CONTROL if added["special"] else USER_DEFINED


def _kind_of(backend: tokenizers.Tokenizer) -> str:
    """Name of a tokenizer's pre-tokenizer, found by comparing it with those that can be rebuilt."""
    given = None if backend.pre_tokenizer is None else backend.pre_tokenizer.__getstate__()
    for kind in PRE_TOKENIZERS:
        if _settings(pre_tokenizer_of(kind).__getstate__()) == _settings(given):
            return kind
    raise UnsupportedError(
        "the pre-tokenizer has no name in GGUF files that is known here", hint=f"known: {', '.join(PRE_TOKENIZERS)}"
    )


def _settings(state: bytes | None) -> object:
    """Settings of a pre-tokenizer, without those that only change offsets into the text."""
    if state is None:
        return None
    return json.loads(state, object_hook=lambda found: {k: v for k, v in found.items() if k != "trim_offsets"})
