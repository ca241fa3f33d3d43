"""SentencePiece's byte-pair encoding (Kudo & Richardson 2018, arXiv 1808.06226) in the tokenizers library."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import tokenizers

SPACE: Final = "\u2581"
"""Represents a space in a piece."""
MAX_PIECE: Final = 256
"""Maximum characters of a merged piece; SentencePiece's own limit is far lower."""


def sentencepiece_bpe(
    vocabulary: Mapping[str, int], ranked: Sequence[str], *, unknown: str | None, prefix: bool
) -> tokenizers.Tokenizer:
    """Return a tokenizer that merges like SentencePiece: of all neighbours that form a piece, the best piece first.

    SentencePiece has no list of merges. Any two neighbours may merge if they form a piece, so each split of a piece
    into two pieces is a merge, with the rank of the piece.

    Parameters
    ----------
    vocabulary : piece → id, with the byte pieces ``<0x00>`` … for characters without a piece
    ranked : pieces that are formed by merges, best first
    unknown : unknown piece, if there is one
    prefix : whether a leading space is added to a text
    """
    from tokenizers import Tokenizer, decoders, models, normalizers

    merges = merges_of(vocabulary, ranked)
    model = models.BPE(vocab=dict(vocabulary), merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    built = Tokenizer(model)
    spaces = normalizers.Replace(" ", SPACE)
    built.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefix else spaces
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    built.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return built


def merges_of(vocabulary: Container[str], ranked: Sequence[str]) -> list[tuple[str, str]]:
    """Return all merges that form pieces, those of the best piece first."""
    return [
        (piece[:cut], piece[cut:])
        for piece in ranked
        if len(piece) <= MAX_PIECE
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
