"""Control tokens: vocabulary tokens that structure a text; they are matched only where a caller allows them.

A tokenizer finds its added tokens in any text, including user input. Hugging Face marks the special ones among them;
llama.cpp also treats ``<|…|>`` and ``<｜…｜>`` as control tokens, which some models do not mark
(``does_token_look_special`` of its ``convert_hf_to_gguf.py``). Markup that a chat template writes counts, too: Qwen's
``</tool_response>`` is not a special token, but still ends the result of a tool.
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
"""Matches control tokens, also those that are not marked as special."""
_MARKUP: Final = re.compile(r"[<\[]\S+[>\]]")
"""Matches possible markup of a template. Other added tokens are text: runs of spaces and line breaks."""
_NEVER: Final = "(?!)"


class ControlTokens:
    """The control tokens of a tokenizer.

    Parameters
    ----------
    tokenizer : the tokenizer with the added tokens
    source : source of the chat templates; tokens in it that look like markup count, too

    Attributes
    ----------
    special : texts of the control tokens that are special
    markup : texts of the tokens that the template writes
    texts : texts of both
    pattern : matches the longest control token at a position
    """

    def __init__(self, tokenizer: Tokenizer, source: str = "") -> None:
        added = tokenizer.added_tokens
        self._tokenizer = tokenizer
        self.special: frozenset[str] = frozenset(
            text for text, special in added.items() if special or _CONTROL.fullmatch(text)
        )
        self.markup: frozenset[str] = frozenset(
            text for text in added.keys() - self.special if text in source and _MARKUP.fullmatch(text)
        )
        self.texts: frozenset[str] = self.special | self.markup
        self.pattern: re.Pattern[str] = re.compile(any_of(self.texts))

    def encode(self, pieces: Callable[[str], str], text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of a text in which only some control tokens are matched.

        Parameters
        ----------
        pieces : converts the text to the final one after control tokens have been removed; other text is spelled so
            that `pattern` does not match it

        Raises
        ------
        GenerationError : the text cannot be encoded
        """
        if self._nonce in pieces(text):  # must be unpredictable
            for name in ("_nonce", "_renamed"):
                self.__dict__.pop(name, None)
        names = self._names
        text = self.pattern.sub(lambda match: names[match[0]], text)
        return self._renamed_tokenizer.encode(pieces(text), add_special_tokens=add_special_tokens)

    @cached_property
    def _nonce(self) -> str:
        """Random prefix of renamed control tokens, whose original texts then count as text."""
        return secrets.token_hex(16)

    @property
    def _names(self) -> dict[str, str]:
        return {text: f"{self._nonce}{i:08x}" for i, text in enumerate(sorted(self.texts))}

    @cached_property
    def _renamed_tokenizer(self) -> Tokenizer:
        """The tokenizer with other texts for control tokens: it splits and merges all other text as before."""
        return self._tokenizer.with_renamed_tokens(self._names)


def any_of(texts: Iterable[str]) -> str:
    """Return a regular expression for any of some texts, longest first; its time does not depend on their number."""
    root: dict[str, dict] = {}
    for text in filter(None, texts):
        node = root
        for char in text:
            node = node.setdefault(char, {})
        node[""] = {}
    return _alternation(root) if root else _NEVER


def _alternation(node: dict[str, dict]) -> str:
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
    return (re.escape(char) + _alternation(child) for char, child in sorted(node.items()) if char)
