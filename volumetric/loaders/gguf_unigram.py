"""SentencePiece's unigram vocabularies in GGUF files, where they are called ``t5``: T5, XLM-RoBERTa and others.

A text is split so that the sum of its pieces' scores is maximal (Kudo 2018, arXiv 1804.10959). Before that, a table
that belongs to the vocabulary, a compiled trie, replaces characters, and spaces become U+2581.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.loaders.gguf_sentencepiece import HINT, LED, PROBES, add_tokens, same_ids
from volumetric.loaders.sentencepiece_bpe import SPACE

if TYPE_CHECKING:
    import tokenizers

CHARSMAP: Final = "precompiled_charsmap"
PREFIX_SPACE: Final = "add_space_prefix"
MERGE_SPACES: Final = "remove_extra_whitespaces"


def unigram(
    pieces: Sequence[str],
    scores: Array,
    *,
    normal: Array,
    unknown: int,
    unused: Sequence[int],
    byte_fallback: bool,
    charsmap: bytes | None,
    prefix: bool,
    merge: bool,
) -> tokenizers.Tokenizer:
    """Build a unigram tokenizer.

    Parameters
    ----------
    pieces, scores : by id
    normal : ids of the pieces into which texts are split; others are matched before, or never
    unknown : id of the unknown token
    unused : ids that occur in no text
    byte_fallback : whether characters without a piece become the byte pieces ``<0x00>`` …
    charsmap : the compiled table of replacements, None for no replacements
    prefix : whether a leading space is added to a text
    merge : whether spaces at the ends are dropped, and runs of spaces become one
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    # The library derives the score of the unknown piece from the lowest score. Pieces that are not in `normal` must not
    # be the lowest; a name with a space matches no text.
    names, values = list(pieces), [float(score) for score in scores]
    least = float(np.min(scores[normal], initial=np.inf)) if len(normal) else 0.0
    for id in set(range(len(names))) - set(normal.tolist()):
        values[id] = max(values[id], least)
    hidden = set(unused)
    for id in hidden:
        names[id] = f" {names[id]}"
    while names and len(names) - 1 in hidden:
        hidden.discard(len(names) - 1)
        del names[-1], values[-1]
    built = Tokenizer(models.Unigram(list(zip(names, values, strict=True)), unknown, byte_fallback))
    before = [] if charsmap is None else [normalizers.Precompiled(charsmap)]
    if prefix and merge:  # as in transformers
        cut = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always", split=True)
        built.normalizer = normalizers.Sequence(before)
        built.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), cut])
    else:
        merged = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")] if merge else []
        start = [normalizers.Prepend(SPACE)] if prefix else []
        spaces = normalizers.Replace(" ", SPACE)
        built.normalizer = normalizers.Sequence([*before, *merged, *start, spaces])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    fallback = [decoders.ByteFallback()] if byte_fallback else []
    built.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), *fallback, decoders.Fuse(), *strip])
    return built


def read_charsmap(value: object, where: str) -> bytes | None:
    """Return the table of replacements in a file, None if it has none. Raises `CheckpointError`."""
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.dtype.itemsize != 1 or value.dtype.kind not in "iu":
        raise CheckpointError(f"{where}: {CHARSMAP} is not a list of bytes")
    return value.tobytes() or None


def unigram_metadata(backend: tokenizers.Tokenizer, state: Mapping[str, Any], types: Array) -> dict[str, Any]:
    """Return the metadata of a unigram tokenizer in addition to tokens and types, by keys without their prefix.

    Parameters
    ----------
    backend, state : the tokenizer, and the content of its tokenizer.json
    types : type of each token of the file

    Raises
    ------
    UnsupportedError
        No flags of the format make readers split texts as this tokenizer does.
    """
    model, table = state["model"], _charsmap(state.get("normalizer"))
    pieces = [piece for piece, _ in model["vocab"]]
    scores = np.array([score for _, score in model["vocab"]], np.float32)
    written = np.full(len(types), scores.min(initial=0.0), np.float32)  # for tokens that are not in the model
    written[: len(scores)] = scores
    plain = {id: token["content"] for token in state["added_tokens"] if (id := token["id"]) < len(pieces)}
    if any(pieces[id] != content for id, content in plain.items()):
        raise UnsupportedError("an added token replaces another piece", hint=HINT)
    for prefix, merge in ((True, True), (True, False), (False, True), (False, False)):
        rebuilt = unigram(
            pieces,
            scores,
            normal=np.arange(len(pieces)),
            unknown=model["unk_id"] or 0,
            unused=(),
            byte_fallback=bool(model.get("byte_fallback")),
            charsmap=table,
            prefix=prefix,
            merge=merge,
        )
        if same_ids(add_tokens(rebuilt, state), backend, (*PROBES, *LED)):
            values: dict[str, Any] = {"model": "t5", "pre": "default", "scores": written}
            values |= {PREFIX_SPACE: np.bool_(prefix), MERGE_SPACES: np.bool_(merge)}
            return values if table is None else {**values, CHARSMAP: np.frombuffer(table, np.uint8)}
    raise UnsupportedError("GGUF cannot store how the tokenizer normalises texts and splits them into words", hint=HINT)


def _charsmap(normalizer: Mapping[str, Any] | None) -> bytes | None:
    """Table of replacements in a tokenizer.json: of the only normalizer, or of one in a sequence."""
    if normalizer is None:
        return None
    parts = normalizer.get("normalizers", []) if normalizer.get("type") == "Sequence" else [normalizer]
    tables = [part["precompiled_charsmap"] for part in parts if part.get("type") == "Precompiled"]
    others = {part.get("type") for part in parts} - {"Precompiled", "Strip", "Replace", "Prepend"}
    if len(tables) > 1 or others:
        kinds = ", ".join(sorted(map(str, others))) or "two tables of replacements"
        raise UnsupportedError(f"GGUF cannot store that a tokenizer normalises by {kinds}", hint=HINT)
    return base64.b64decode(tables[0]) if tables and tables[0] else None
