"""SentencePiece's byte-pair encoding (Kudo & Richardson 2018, arXiv 1808.06226) in the tokenizers library."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import tokenizers

SPACE: Final = "\u2581"
"""Stands for a space inside of a piece."""
MAX_PIECE: Final = 256
"""Characters of a piece that is reached by merging; SentencePiece's own limit is far lower."""


def sentencepiece_bpe(
    vocabulary: Mapping[str, int], ranked: Sequence[str], *, unknown: str | None, prefix: bool
) -> tokenizers.Tokenizer:
    """Return a tokenizer that merges as SentencePiece does: of all neighbours that form a piece, the best piece first.

    SentencePiece keeps no list of merges. Any two neighbours may merge if they form a piece, so each split of a piece
    into two pieces is a merge, ranked as the piece is.

    Parameters
    ----------
    vocabulary : piece → id, with the byte pieces ``<0x00>`` … for characters that no piece has
    ranked : pieces that are made by merging, best first
    unknown : piece for what cannot be written, if there is one
    prefix : a text starts with a space that was not written
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
    """Return all merges that make pieces, those of the best piece first."""
    return [
        (piece[:cut], piece[cut:])
        for piece in ranked
        if len(piece) <= MAX_PIECE
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
