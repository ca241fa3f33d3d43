"""Fill in the middle: prompts for the text between a prefix and a suffix, with the model's tokens for it.

Sources: the model cards of Qwen2.5-Coder, StarCoder and DeepSeek-Coder, and ``llama/tokenizer.py`` of
https://github.com/meta-llama/codellama, after M. Bavarian et al., "Efficient Training of Language Models to Fill in the
Middle", https://arxiv.org/abs/2207.14255: prefix, suffix, middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from volumetric.serve.problem import bad_request

if TYPE_CHECKING:
    from volumetric.loaders.tokenizer import Tokenizer

_FAMILIES: Final = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite Code
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
)
_ENDS: Final = (
    *("<|endoftext|>", "<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<|repo_name|>", "<|file_sep|>", "<file_sep>"),
    *("▁<EOT>", "<|EOT|>"),
)
_BEFORE: Final = "☺"
"""A text before a suffix: tokenizers that begin a text with a space put it there."""


@dataclass(frozen=True, slots=True)
class FillInMiddle:
    """Tokens around the parts of a prompt.

    Attributes
    ----------
    tokenizer : the model's tokenizer
    prefix, suffix, middle : ids of the tokens before the parts; the answer follows the last one
    ends : ids of tokens that end an answer
    """

    tokenizer: Tokenizer
    prefix: int
    suffix: int
    middle: int
    ends: tuple[int, ...]

    def prompt(self, before: str | Sequence[int], after: str, limit: int | None = None) -> list[int]:
        """Return the ids of a prompt for the text between two texts; `limit` is that of `Tokenizer.encode`.

        Raises
        ------
        GenerationError : see `Tokenizer.encode`
        """
        tokenizer = self.tokenizer
        begin = tokenizer.encode("")[:1]
        begin = begin if begin and begin[0] == tokenizer.bos_id else []
        encode = partial(tokenizer.encode, add_special_tokens=False, limit=limit)
        ids = encode(before) if isinstance(before, str) else before
        return [*begin, self.prefix, *ids, self.suffix, *_inner(tokenizer, encode, after), self.middle]


def fill_in_middle_of(name: str, tokenizer: Tokenizer | None) -> FillInMiddle:
    """Return the fill-in tokens of a model. Raises `RequestError` if its vocabulary has none."""
    if tokenizer is not None:
        for marks in _FAMILIES:
            prefix, suffix, middle = map(tokenizer.token_id, marks)
            if prefix is not None and suffix is not None and middle is not None:
                ends = (id for id in map(tokenizer.token_id, _ENDS) if id is not None)
                return FillInMiddle(tokenizer, prefix, suffix, middle, (prefix, suffix, middle, *ends))
    raise bad_request(
        f"{name} has no tokens for filling in: leave suffix out, or serve a model that has them "
        "(Qwen2.5-Coder, StarCoder, DeepSeek-Coder, CodeLlama)",
        param="suffix",
    )


def _inner(tokenizer: Tokenizer, encode: Callable[[str], list[int]], text: str) -> list[int]:
    """Return the ids of a text in the middle: without the space that some tokenizers put first."""
    ids = encode(text)
    first = tokenizer.token(ids[0]) if ids else None
    if first is None or not first.startswith("▁"):
        return ids
    head, whole = encode(_BEFORE), encode(_BEFORE + text)
    return whole[len(head) :] if whole[: len(head)] == head else ids
