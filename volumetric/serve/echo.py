"""``echo`` of text completions: answers that begin with the prompt, and contain its log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from volumetric.generate.token_events import Generation, TokenEvent, TopLogprobs
from volumetric.serve.answer_fields import JsonObject
from volumetric.serve.completion_answers import TextAnswer


@dataclass(slots=True, kw_only=True)
class EchoAnswer(TextAnswer):
    """Text completions with ``echo``.

    Attributes
    ----------
    prompts : texts and token ids of the prompts
    alone : only the prompt is returned; the one token that a job must generate is dropped
    """

    prompts: Sequence[tuple[str, Sequence[int]]] = field(default_factory=tuple)
    alone: bool = False
    _prompt_logprobs: dict[int, tuple[list[float | None], list[TopLogprobs | None]]] = field(default_factory=dict)
    """Log-probabilities and most likely tokens of each prompt, by prompt number."""

    def whole(self, prompts: Sequence[Sequence[Generation]]) -> JsonObject:
        """Return the answer for all texts of all prompts."""
        first = [generations[0] for generations in prompts for _ in generations]
        heads = [self._head_of(index, generation) for index, generation in enumerate(first)]
        answer = TextAnswer.whole(self, prompts)
        for choice, (text, scored) in zip(answer["choices"], heads, strict=True):
            choice["text"] = text + choice["text"]
            if scored is not None:
                choice["logprobs"] = {name: scored[name] + values for name, values in choice["logprobs"].items()}
        return answer

    def cost(self, prompts: Sequence[Sequence[Generation]]) -> JsonObject:
        """Return the counts of prompt and completion tokens."""
        counts = TextAnswer.cost(self, prompts)
        if self.alone:
            counts |= {"completion_tokens": 0, "total_tokens": counts["prompt_tokens"]}
        return counts

    def choice(self, index: int, generation: Generation) -> JsonObject:
        """Return the choice of a whole text, without the prompt."""
        if not self.alone:
            return TextAnswer.choice(self, index, generation)
        return {
            "index": index,
            "text": "",
            "logprobs": None if self.tops is None else self._tokens(index, ()),
            "finish_reason": "length",
        }

    def frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return what encloses the JSON of a text in further events; None if there are none."""
        return None if self.alone else TextAnswer.frame(self, index)

    def piece(self, index: int, tokens: Sequence[TokenEvent]) -> list[JsonObject]:
        """Return the chunk of some tokens of a text; the prompt precedes the first one."""
        head: list[JsonObject] = []
        if not tokens[0].index:
            text, scored = self._head_of(index, tokens[0])
            head = [{"index": index, "text": text, "logprobs": scored, "finish_reason": None}]
        return head if self.alone else [*head, *TextAnswer.piece(self, index, tokens)]

    def closing(self, index: int, reason: str) -> list[JsonObject]:
        """Return the chunks after the last token of a text."""
        return TextAnswer.closing(self, index, "length" if self.alone else reason)

    def _head_of(self, index: int, output: Generation | TokenEvent) -> tuple[str, JsonObject | None]:
        """Return the prompt of a text with its log-probabilities; the first token has none.

        The first text of a prompt carries the log-probabilities that all its texts return.
        """
        number = index // self.texts
        text, ids = self.prompts[number]
        if self.tops is None:
            return text, None
        if number not in self._prompt_logprobs:
            likelihoods, likeliest = output.likelihoods or (), output.likeliest or ()
            self._prompt_logprobs[number] = [None, *likelihoods[: len(ids) - 1]], [None, *likeliest[: len(ids) - 1]]
        return text, self.scored(index, ids, *self._prompt_logprobs[number])
