"""Describe a tokenizer in the metadata of a GGUF file: byte-level BPE, one of SentencePiece's, or WordPiece."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.gguf_sentencepiece import BYTE as BYTE_PIECE
from volumetric.loaders.gguf_sentencepiece import sentencepiece_metadata
from volumetric.loaders.gguf_tokenizer import (
    BYTE,
    COMPOSING,
    CONTROL,
    ENDS,
    MAX_LENGTH,
    NORMAL,
    PRE_TOKENIZERS,
    PREFIX,
    ROLES,
    SAMPLING,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    WHOLE,
    pre_tokenizer_of,
)
from volumetric.loaders.gguf_unigram import unigram_metadata
from volumetric.loaders.gguf_wordpiece import wordpiece_metadata
from volumetric.loaders.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

logger: logging.Logger = logging.getLogger(__name__)

FORMATS: Final = "use format native or hf"


def generation_metadata(generation: GenerationDefaults, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """GGUF metadata of begin, end and padding ids, and of sampling: the inverse of `generation_ids`.

    The format has three keys for end-of-text ids; further ids are logged and left to the chat template.
    """
    first = None if tokenizer is None else tokenizer.eos_id
    ends = sorted(generation.eos_ids, key=lambda id: (id != first, id))
    if len(ends) > len(ENDS):
        logger.warning("GGUF can store three end-of-text ids; left out: %s", ends[len(ENDS) :])
    named = [*zip(ENDS, ends, strict=False), ("bos", generation.bos_id), ("padding", generation.pad_id)]
    ids = {f"{PREFIX}{name}_token_id": np.uint32(id) for name, id in named if id is not None}
    return ids | (sampling_metadata(generation) if generation.do_sample else {})


def sampling_metadata(generation: GenerationDefaults) -> dict[str, Any]:
    """GGUF metadata of the sampling defaults of a model."""
    values: dict[str, Any] = {name: getattr(generation, name) for name in SAMPLING}
    values["temperature"] = 1.0 if generation.temperature is None else generation.temperature  # transformers' default
    return {
        SAMPLING[name]: np.int32(value) if isinstance(value, int) else np.float32(value)
        for name, value in values.items()
        if value is not None
    }


def tokenizer_metadata(tokenizer: Tokenizer | None, rows: int = 0) -> dict[str, Any]:
    """Return the GGUF metadata from which `read_tokenizer` and llama.cpp rebuild a tokenizer, or mark its absence.

    Parameters
    ----------
    rows : rows of the embedding. llama.cpp expects as many tokens, so ids without a token get an unused one,
        ``[PAD7]``, named as in its converter.

    Raises
    ------
    UnsupportedError
        It is not BERT's WordPiece, byte-level BPE with a pre-tokenizer that has a name in GGUF, or one of
        SentencePiece's two kinds; or it has more tokens than `rows`, or behaviour that the files cannot store.
    """
    if tokenizer is None:
        return {PREFIX + "model": "no_vocab"}
    state = json.loads(tokenizer.to_json())
    kind = _kind(state["model"])
    names = _names(state)
    added = {token["content"]: token for token in state["added_tokens"]}
    count = max(rows, 1 + max(names, default=-1))
    if not names or count > (rows or 2 * len(names)):
        raise UnsupportedError(
            f"the tokenizer has {len(names)} tokens with ids up to {count - 1}, the embedding {rows} rows",
            hint="GGUF needs one token for each row",
        )
    tokens = [names.get(id, f"[PAD{id}]") for id in range(count)]
    unknown = _unknown(tokenizer, state["model"]) if kind in ("llama", "t5") else None
    types = np.array([_type(added.get(token)) if id in names else UNUSED for id, token in enumerate(tokens)], np.int32)
    if kind in ("llama", "t5") and state["model"].get("byte_fallback"):
        types[[id for id, token in enumerate(tokens) if BYTE_PIECE.fullmatch(token)]] = BYTE
    if unknown is not None:
        types[unknown] = UNKNOWN
    if kind == "bert":
        own = wordpiece_metadata(tokenizer, tokens, set(np.flatnonzero(types == CONTROL).tolist()))
    elif kind == "gpt2":
        _check_form(tokenizer, state)
        own = {**_byte_level(tokenizer, state), **_ids(tokenizer), "add_space_prefix": False}
    elif kind == "llama":
        own = {**sentencepiece_metadata(tokenizer.backend, state, tokens), **_ids(tokenizer)}
    else:
        own = {"add_eos_token": False, **unigram_metadata(tokenizer.backend, state, types), **_ids(tokenizer)}
    if unknown is not None:
        own["unknown_token_id"] = np.uint32(unknown)
    return {PREFIX + name: value for name, value in {"tokens": tokens, **own, "token_type": types}.items()}


def _kind(model: Mapping[str, Any]) -> str:
    """Name of a tokenizer's model in GGUF files."""
    if model["type"] == "BPE":
        return "llama" if model.get("byte_fallback") else "gpt2"
    kinds = {"Unigram": "t5", "WordPiece": "bert"}
    if model["type"] not in kinds:
        raise UnsupportedError(f"GGUF has no form for a tokenizer of the kind {model['type']}", hint=FORMATS)
    return kinds[model["type"]]


def _names(state: Mapping[str, Any]) -> dict[int, str]:
    """Token of each id; added tokens replace those of the model."""
    vocab = state["model"]["vocab"]
    vocabulary = dict(vocab) if isinstance(vocab, dict) else {piece: id for id, (piece, _) in enumerate(vocab)}
    if len(vocabulary) < len(vocab):
        raise UnsupportedError("the vocabulary of the tokenizer has a duplicate token", hint=FORMATS)
    vocabulary |= {token["content"]: token["id"] for token in state["added_tokens"]}
    names = {id: token for token, id in vocabulary.items()}
    if len(names) < len(vocabulary):
        raise UnsupportedError(
            f"the tokenizer has {len(vocabulary)} tokens with {len(names)} ids",
            hint="GGUF needs one token for each row",
        )
    return names


def _unknown(tokenizer: Tokenizer, model: Mapping[str, Any]) -> int | None:
    """Id of the unknown token."""
    if model["type"] == "Unigram":
        return model["unk_id"]
    return tokenizer.token_id(model.get("unk_token") or tokenizer.special_tokens.get("unk_token"))


def _ids(tokenizer: Tokenizer) -> dict[str, Any]:
    """Ids of special tokens, and flags for those around a text."""
    ids = {name: tokenizer.token_id(tokenizer.special_tokens.get(role)) for name, role in ROLES.items()}
    values: dict[str, Any] = {f"{name}_token_id": np.uint32(id) for name, id in ids.items() if id is not None}
    alone, around = tokenizer.encode("a", add_special_tokens=False), tokenizer.encode("a")
    at = next((i for i in range(len(around)) if around[i : i + len(alone)] == alone), 0)
    before, after = around[:at], around[at + len(alone) :]
    if len(before) > 1 or len(after) > 1:
        raise UnsupportedError("GGUF cannot store several tokens before or after a text", hint=FORMATS)
    values["add_bos_token"] = bool(before)
    if before:
        values["bos_token_id"] = np.uint32(before[0])
    if after:
        values |= {"add_eos_token": True, "eos_token_id": np.uint32(after[0])}
    return values


def _byte_level(tokenizer: Tokenizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of byte-level BPE in addition to tokens and types, by keys without their prefix."""
    return {
        "model": "gpt2",
        "pre": _kind_of(tokenizer.backend),
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in state["model"]["merges"]],
    }


def length_metadata(tokenizer: Tokenizer | None, max_length: int | None, context: int) -> dict[str, Any]:
    """Return the maximum number of tokens of a text, if the model allows more.

    Parameters
    ----------
    max_length : limit that overrides the tokenizer's
    """
    limit = max_length or (None if tokenizer is None else tokenizer.max_length)
    return {MAX_LENGTH: np.uint32(limit)} if limit is not None and limit < context else {}


def _check_form(tokenizer: Tokenizer, state: Mapping[str, Any]) -> None:
    """Raise `UnsupportedError` for features that readers lack: another normalizer, marks in words."""
    kind = _kind_of(tokenizer.backend)
    normalizer = (state.get("normalizer") or {}).get("type")
    if normalizer not in (("NFC", None) if kind in COMPOSING else (None,)):
        raise UnsupportedError(f"GGUF cannot store that the tokenizer normalises text by {normalizer}", hint=FORMATS)
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if state["model"].get(name):
            raise UnsupportedError(f"GGUF cannot store that the tokenizer has {name}", hint=FORMATS)
    if bool(state["model"].get("ignore_merges")) != (kind in WHOLE):
        raise UnsupportedError(f"GGUF cannot store how {kind} handles words that no merges lead to", hint=FORMATS)


def _type(added: Mapping[str, Any] | None) -> int:
    if added is None:
        return NORMAL
    return CONTROL if added["special"] else USER_DEFINED


def _kind_of(backend: tokenizers.Tokenizer) -> str:
    """Name of a tokenizer's pre-tokenizer, found by comparing it with those that can be rebuilt."""
    composes, whole = backend.normalizer is not None, bool(getattr(backend.model, "ignore_merges", False))
    state = None if backend.pre_tokenizer is None else backend.pre_tokenizer.__getstate__()
    settings = _settings(state)
    kinds = [kind for kind in PRE_TOKENIZERS if _settings(pre_tokenizer_of(kind).__getstate__()) == settings]
    if kinds:
        alike = [kind for kind in kinds if (kind in COMPOSING) == composes] or kinds
        return next((kind for kind in alike if (kind in WHOLE) == whole), alike[0])
    raise UnsupportedError(
        "the pre-tokenizer has no known name in GGUF files", hint=f"known: {', '.join(PRE_TOKENIZERS)}"
    )


def _settings(state: bytes | None) -> object:
    """Settings of a pre-tokenizer, without those that only change offsets into the text."""
    if state is None:
        return None
    return json.loads(state, object_hook=lambda fields: {k: v for k, v in fields.items() if k != "trim_offsets"})
