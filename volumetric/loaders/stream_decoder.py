"""Decoding of a stream of ids, one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from volumetric.loaders.tokenizer import Tokenizer

HELD_BACK: Final = 16
"""Maximum ids whose text is held back. A character has at most four bytes, so more only occur for invalid text."""


class StreamDecoder:
    """Streaming decoder of ids. Incomplete characters are held back; returned text never changes.

    Some decoders strip the space before the first word, so each result is the growth of the text of recent ids, not the
    text of a single id.
    """

    __slots__ = ("_emitted", "_ids", "_shown", "_skip", "_tokenizer")

    def __init__(
        self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True, shown: Set[int] = frozenset()
    ) -> None:
        self._shown = shown
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids: list[int] = []  # the latest returned ids, as context, and those held back
        self._emitted = 0  # number of these that were returned

    def push(self, token_id: int) -> str:
        """Add one id; return the new final text."""
        if token_id in self._shown:
            return self.flush() + self._tokenizer.decode([token_id], skip_special_tokens=False)
        known = None
        if self.whole and (texts := self._tokenizer.texts_by_id) is not None:
            known = texts[not self._skip]
            if (text := known.get(token_id)) is not None:
                self._ids = [token_id]
                return text
        self._ids.append(token_id)
        before, after = self._texts()
        if after.endswith("\ufffd") and len(self._ids) - self._emitted <= HELD_BACK:
            return ""
        if len(after) <= len(before):
            return ""
        text = after[len(before) :]
        if known is not None and "\ufffd" not in text:
            known[token_id] = text
        self._ids = self._ids[self._emitted :]
        self._emitted = len(self._ids)
        return text

    @property
    def whole(self) -> bool:
        """Whether nothing is held back, and what precedes is whole."""
        return self._emitted == len(self._ids) == 1

    @property
    def texts_by_id(self) -> Mapping[int, str] | None:
        """Texts of ids that `push` returns while `whole`, as far as they are known; None if they differ."""
        texts = None if self._shown else self._tokenizer.texts_by_id
        return None if texts is None else texts[not self._skip]

    def follow(self, token_id: int) -> None:
        """Go on behind an id whose text came from `texts_by_id`."""
        self._ids, self._emitted = [token_id], 1

    def flush(self) -> str:
        """Return the text held back, with U+FFFD for incomplete characters, and reset."""
        before, after = self._texts()
        self._ids, self._emitted = [], 0
        return after[len(before) :]

    def _texts(self) -> tuple[str, str]:
        """Text of the returned ids, and of all ids."""
        decode = self._tokenizer.decode
        before = decode(self._ids[: self._emitted], skip_special_tokens=self._skip)
        return before, decode(self._ids, skip_special_tokens=self._skip)
