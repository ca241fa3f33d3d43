"""Control tokens: those of a vocabulary that say what a text is, found only where a caller says that they stand.

A tokenizer finds the tokens that were added to it in any text, whoever wrote it. Hugging Face marks the special ones
among them; llama.cpp also takes ``<|…|>`` and ``<｜…｜>`` for control tokens, which some models do not mark
(``does_token_look_special`` of its ``convert_hf_to_gguf.py``). What a chat template writes itself is markup, too: a
``</tool_response>`` of Qwen is no special token, and ends what a tool returned all the same.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from volumetric.loaders.tokenizer import Tokenizer

_CONTROL: Final = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)
"""What is a control token, marked as one or not."""
_MARKUP: Final = re.compile(r"[<\[]\S+[>\]]")
"""What may be markup of a template. Others among the added tokens are text: runs of spaces and line breaks."""
_NEVER: Final = "(?!)"


class ControlTokens:
    """The control tokens of a tokenizer.

    Parameters
    ----------
    tokenizer : whose added tokens are looked at
    source : of the chat templates; tokens that look like markup and stand in it count, too

    Attributes
    ----------
    special : texts of those that are control tokens by themselves
    markup : texts of those that are because the template writes them
    texts : of both
    pattern : finds one, the longest that begins at a place
    """

    def __init__(self, tokenizer: Tokenizer, source: str = "") -> None:
        added = tokenizer.added_tokens
        self._tokenizer = tokenizer
        self.special = frozenset(text for text, special in added.items() if special or _CONTROL.fullmatch(text))
        self.markup = frozenset(
            text for text in added.keys() - self.special if text in source and _MARKUP.fullmatch(text)
        )
        self.texts = self.special | self.markup
        self.pattern = re.compile(any_of(self.texts))

    def encode(self, pieces: Callable[[str], str], text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of a text in which only some control tokens stand as such.

        Parameters
        ----------
        pieces : turns the text into the one that is meant, once control tokens have been taken out of it: what is none
            is written so that `pattern` does not find it

        Raises
        ------
        GenerationError : the text cannot be encoded
        """
        if self._nonce in pieces(text):  # nobody can know it; then it would not be one
            for name in ("_nonce", "_renamed"):
                self.__dict__.pop(name, None)
        names = self._names
        text = self.pattern.sub(lambda match: names[match[0]], text)
        return self._renamed.encode(pieces(text), add_special_tokens=add_special_tokens)

    @cached_property
    def _nonce(self) -> str:
        """What the names of control tokens begin with, where their own texts are text."""
        return secrets.token_hex(16)

    @property
    def _names(self) -> dict[str, str]:
        return {text: f"{self._nonce}{i:08x}" for i, text in enumerate(sorted(self.texts))}

    @cached_property
    def _renamed(self) -> Tokenizer:
        """The tokenizer with other texts for control tokens: it cuts and merges all other text as before."""
        return self._tokenizer.renamed(self._names)


def any_of(texts: Iterable[str]) -> str:
    """Return an expression for any of some texts, the longest first, whose time does not grow with their number."""
    root: dict[str, dict] = {}
    for text in filter(None, texts):
        node = root
        for char in text:
            node = node.setdefault(char, {})
        node[""] = {}
    return _written(root) if root else _NEVER


def _written(node: dict[str, dict]) -> str:
    chain = ""
    while len(node) == 1:
        ((char, node),) = node.items()
        if not char:
            return chain
        chain += re.escape(char)
    if not node:
        return chain
    branches = "|".join(_branches(node))
    return f"{chain}(?:{branches}){'?' if '' in node else ''}"


def _branches(node: dict[str, dict]) -> Iterator[str]:
    return (re.escape(char) + _written(child) for char, child in sorted(node.items()) if char)
