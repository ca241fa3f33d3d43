"""Echoes: answers of text completions that begin with the prompt, and tell how likely each of its tokens was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from volumetric.generate.events import Generation, TokenEvent
from volumetric.serve.shapes import TextShape
from volumetric.serve.told import Told, finite


@dataclass(slots=True, kw_only=True)
class EchoShape(TextShape):
    """Text completions that begin with their prompt.

    Attributes
    ----------
    prompts : texts and token ids of the prompts
    texts : answers to each prompt
    alone : nothing follows the prompt: one token was drawn, as there is no less, and is not told
    """

    prompts: Sequence[tuple[str, Sequence[int]]] = field(default_factory=tuple)
    texts: int = 1
    alone: bool = False
    _told: dict[int, Told | None] = field(default_factory=dict)
    """Log-probabilities of prompts whose stream has begun, by number."""

    def whole(self, prompts: Sequence[Sequence[Generation]]) -> Told:
        """Return the answer to prompts with some texts each."""
        told = TextShape.whole(self, prompts)
        first = [generations[0] for generations in prompts for _ in generations]
        for choice, generation in zip(told["choices"], first, strict=True):
            text, ids = self.prompts[choice["index"] // self.texts]
            choice["text"] = text + choice["text"]
            if choice["logprobs"] is not None:
                scored = self._scored(ids, generation)
                choice["logprobs"] = {name: scored[name] + values for name, values in choice["logprobs"].items()}
        return told

    def cost(self, prompts: Sequence[Sequence[Generation]]) -> Told:
        """Return how many tokens went in and came out."""
        told = TextShape.cost(self, prompts)
        if self.alone:
            told |= {"completion_tokens": 0, "total_tokens": told["prompt_tokens"]}
        return told

    def choice(self, index: int, generation: Generation) -> Told:
        """Return a whole text, without the prompt."""
        if not self.alone:
            return TextShape.choice(self, index, generation)
        return {"index": index, "text": "", "logprobs": self._tokens(()), "finish_reason": "length"}

    def piece(self, index: int, tokens: Sequence[TokenEvent]) -> list[Told]:
        """Return some tokens of a text; the prompt is before the first one."""
        told = [] if self.alone else TextShape.piece(self, index, tokens)
        if tokens[0].index:
            return told
        number = index // self.texts
        text, ids = self.prompts[number]
        if number not in self._told:  # the first text of a prompt brings what they all tell of it
            self._told[number] = None if self.tops is None else self._scored(ids, tokens[0])
        return [{"index": index, "text": text, "logprobs": self._told[number], "finish_reason": None}, *told]

    def closing(self, index: int, reason: str) -> list[Told]:
        """Return what comes after the last token of a text."""
        return TextShape.closing(self, index, "length" if self.alone else reason)

    def _scored(self, ids: Sequence[int], told: Generation | TokenEvent) -> Told:
        """Return log-probabilities of a prompt: none of its first token, which nothing is before."""
        likelihoods, likeliest = told.likelihoods or (), told.likeliest or ()
        tops = [{self.text_of(i): finite(value) for i, value in row} for row in likeliest[: len(ids) - 1]]
        return {
            "tokens": [self.text_of(token) for token in ids],
            "token_logprobs": [None, *(finite(value) for value in likelihoods[: len(ids) - 1])],
            "top_logprobs": [None, *tops],
        }
