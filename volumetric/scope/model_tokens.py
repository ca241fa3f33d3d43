"""Tokens of a prompt, and their texts with blanks and line ends made visible."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from volumetric.base.errors import GenerationError

if TYPE_CHECKING:
    from volumetric.loaders import LoadedModel
    from volumetric.loaders.tokenizer import Tokenizer

_SIGNS: Final = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
_LONGEST: Final = 40
"""Characters of a token's text; some tokens of code are 128 blanks."""
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
"""Unicode categories of characters that show nothing or change how others are shown, such as marks of direction."""


def prompt_ids(loaded: LoadedModel, prompt: str | Sequence[int]) -> list[int]:
    """Return the ids of a prompt.

    Raises
    ------
    GenerationError : the prompt is a text and the model has no tokenizer
    """
    if not isinstance(prompt, str):
        return [int(i) for i in prompt]
    if loaded.tokenizer is None:
        raise GenerationError(f"{loaded.name} has no tokenizer", hint="pass the prompt as a list of token ids")
    return loaded.tokenizer.encode(prompt)


def token_texts(tokenizer: Tokenizer | None, ids: Iterable[int]) -> list[str]:
    """Return the text of each token as a reader sees it: ``"␣the"``, ``"⏎"``; ``"#17"`` without a tokenizer."""
    return [f"#{i}" if tokenizer is None else visible(_text(tokenizer, i)) for i in ids]


def _text(tokenizer: Tokenizer, id: int) -> str:
    piece = tokenizer.token(id)
    if piece is None:
        return f"#{id}"
    text = tokenizer.decode([id], skip_special_tokens=False)
    if not text or "\ufffd" in text:  # a part of a character, such as <0xE2>
        return piece
    # Decoders strip the blank before the first word of a text.
    return f" {text}" if piece.startswith("▁") and not text.startswith(" ") else text


def visible(text: str) -> str:
    """Return a text in which every character can be seen; at most 40 of them."""
    shown = "".join(
        _SIGNS.get(c) or (f"\\u{{{ord(c):x}}}" if unicodedata.category(c) in _UNSEEN else c) for c in text[:_LONGEST]
    )
    return shown + "…" * (len(text) > _LONGEST)
