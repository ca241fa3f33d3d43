"""SentencePiece's unigram vocabularies in GGUF files, which call them ``t5``: T5's, XLM-RoBERTa's and their kin.

A text is cut so that the sum of its pieces' scores is greatest (Kudo 2018, arXiv 1804.10959). Before that characters
are replaced by a table that comes with the vocabulary, a compiled trie, and spaces become U+2581.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.loaders.gguf_sentencepiece import HINT, LED, PROBES, same_ids, with_added
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
    normal : ids of the pieces that texts are cut into; other ones are found before, or never
    unknown : id for what no piece has
    unused : ids that no text has
    byte_fallback : what no piece has is written in the byte pieces ``<0x00>`` …
    charsmap : the compiled table of replacements, None: nothing is replaced
    prefix : a text starts with a space that was not written
    merge : spaces at the ends are dropped, and several in a row count as one
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    # The score of the unknown piece is taken from the least of all, which those of pieces that no text is cut into
    # must not be; a name with a space is found in no text.
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
    if prefix and merge:  # as transformers builds them
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
    """Return the table of replacements that a file holds, None where it holds none. Raises `CheckpointError`."""
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.dtype.itemsize != 1 or value.dtype.kind not in "iu":
        raise CheckpointError(f"{where}: {CHARSMAP} is no list of bytes")
    return value.tobytes() or None


def unigram_metadata(backend: tokenizers.Tokenizer, state: Mapping[str, Any], types: Array) -> dict[str, Any]:
    """Return what a file says of a unigram tokenizer beside tokens and types, by keys without their prefix.

    Parameters
    ----------
    backend, state : the tokenizer, and what its tokenizer.json says
    types : type of each token of the file

    Raises
    ------
    UnsupportedError
        No flags of the format make readers cut texts as this tokenizer does.
    """
    model, table = state["model"], _charsmap(state.get("normalizer"))
    pieces = [piece for piece, _ in model["vocab"]]
    scores = np.array([score for _, score in model["vocab"]], np.float32)
    written = np.full(len(types), scores.min(initial=0.0), np.float32)  # for tokens that are none of the model's
    written[: len(scores)] = scores
    plain = {id: token["content"] for token in state["added_tokens"] if (id := token["id"]) < len(pieces)}
    if any(pieces[id] != content for id, content in plain.items()):
        raise UnsupportedError("an added token stands in the place of another piece", hint=HINT)
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
        if same_ids(with_added(rebuilt, state), backend, (*PROBES, *LED)):
            values: dict[str, Any] = {"model": "t5", "pre": "default", "scores": written}
            values |= {PREFIX_SPACE: np.bool_(prefix), MERGE_SPACES: np.bool_(merge)}
            return values if table is None else {**values, CHARSMAP: np.frombuffer(table, np.uint8)}
    raise UnsupportedError("GGUF cannot say how the tokenizer normalises texts and cuts them into words", hint=HINT)


def _charsmap(normalizer: Mapping[str, Any] | None) -> bytes | None:
    """Table of replacements of a tokenizer.json: of the one normalizer, or one of several."""
    if normalizer is None:
        return None
    parts = normalizer.get("normalizers", []) if normalizer.get("type") == "Sequence" else [normalizer]
    tables = [part["precompiled_charsmap"] for part in parts if part.get("type") == "Precompiled"]
    others = {part.get("type") for part in parts} - {"Precompiled", "Strip", "Replace", "Prepend"}
    if len(tables) > 1 or others:
        kinds = ", ".join(sorted(map(str, others))) or "two tables of replacements"
        raise UnsupportedError(f"GGUF cannot say that a tokenizer normalises by {kinds}", hint=HINT)
    return base64.b64decode(tables[0]) if tables and tables[0] else None
