"""A conversation: its messages, the sampling of answers, and the dropping of messages when the context is full."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volumetric.cli import console
from volumetric.cli.chat_history import ChatHistory, Messages
from volumetric.cli.generate import ended_by_context, summary
from volumetric.cli.interrupts import end_on_interrupt

if TYPE_CHECKING:
    from volumetric.generate import Generation, Model, Session
    from volumetric.generate.drafters import Draft


@dataclass
class LocalConversation(ChatHistory):
    """A conversation with an open model, and the session that holds its tokens.

    Attributes
    ----------
    template : arguments of `Session.stream` for the chat template
    draft : proposer of tokens for speculative decoding
    """

    model: Model
    session: Session
    template: dict[str, Any]
    draft: Draft | None = field(default=None, kw_only=True)

    def check(self, settings: dict[str, Any]) -> str:
        """Return the sampling parameters in force, and the source of each."""
        return str(self.model.merged(**settings)).replace(", ", "\n")

    def begin_anew(self) -> None:
        """Clear the session's tokens."""
        self.session.reset()

    def regenerate(self) -> None:
        """Print another reply to the last message; with greedy decoding it is the same."""
        if self.messages and self.model.merged(**self.settings).params.temperature == 0.0:
            console.note("temperature 0 always gives the same answer; to sample another one: /set temperature 0.8")
        super().regenerate()

    def _reply(self, messages: Messages) -> None:
        messages = self._fit_to_context(messages)
        stream = self.session.stream(messages, draft=self.draft, **self.settings, **self.template)
        with closing(stream), end_on_interrupt(stream):
            try:
                for event in stream:
                    console.write(event.text)
            except KeyboardInterrupt:
                stream.close()
            generation = stream.generation
            self._keep(messages, generation.text, begun=bool(generation.token_ids))
        if generation.token_ids:
            self._tell(generation)

    def _tell(self, generation: Generation) -> None:
        console.note(summary(generation.stats, generation.seed))
        stats, context = generation.stats, self.model.info.context
        if generation.finish_reason != "length":
            return
        if ended_by_context(self.model, generation):
            console.note(f"the answer ended because the context of {context} tokens is full; {self._more_room()}")
        else:
            console.note(
                f"the answer was cut off after {stats.generated_tokens} tokens; for longer ones: /set max_tokens 1000"
            )

    def _fit_to_context(self, messages: Messages) -> Messages:
        """Return `messages` without its oldest turns, if the context cannot hold all of them and an answer.

        The system message stays. As in llama.cpp, half of the context is freed at once: the other tokens change their
        positions and are recomputed, which should not happen at every message.
        """
        context = self.model.info.context
        reserve = min(self.model.merged(**self.settings).params.max_tokens, context // 4)
        if self._length(messages) + reserve <= context:
            return messages
        first = 1 if messages[0]["role"] == "system" else 0
        recent = messages
        while self._length(recent) > context // 2:
            users = [i for i, message in enumerate(recent) if message["role"] == "user" and i > first]
            if not users:
                break
            recent = recent[:first] + recent[users[0] :]
        gone = len(messages) - len(recent)
        if gone and self._length(recent) <= context:
            what = "oldest message is" if gone == 1 else f"{gone} oldest messages are"
            console.note(f"the context of {context} tokens is full: the {what} dropped; {self._more_room()}")
        return recent

    def _length(self, messages: Messages) -> int:
        return len(self.model.encode(messages, **self.template))

    def _more_room(self) -> str:
        context, limit = self.model.info.context, self.model.info.context_length
        more = f"; volumetric chat --context N holds more, up to {limit}" if limit > context else ""
        return f"/reset starts again{more}"
