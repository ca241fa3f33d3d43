"""What turns prompts into token ids for a model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from volumetric.generate.prompt import Prompt, check_ids, encode_prompt

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.loaders.chat_contents import Contents


class Prompts:
    """The methods of a `Model` that encode prompts."""

    @cached_property
    def contents(self) -> Contents | None:
        """What encodes messages so that no control tokens come of what they hold; None without a tokenizer."""
        from volumetric.loaders.chat_contents import Contents  # for those who have a conversation

        model = cast("Model", self)
        return None if model.tokenizer is None else Contents(model.tokenizer, model.loaded.chat_template)

    def encode(
        self,
        prompt: Prompt,
        *,
        template_args: Mapping[str, Any] | None = None,
        parse_special: bool | None = None,
        limit: int | None = None,
    ) -> list[int]:
        """Turn a prompt into token ids.

        Parameters
        ----------
        prompt : text, token ids, or chat messages
        template_args : further names for the chat template
        parse_special : whether control tokens count that are written in a text, or in what messages hold. None: in a
            text, whose author writes the whole prompt, and not in messages, whose contents may be anybody's
        limit : that of `Tokenizer.encode`

        Raises
        ------
        GenerationError : nothing is left, an id is outside of the vocabulary, the model has no tokenizer or chat
            template, or the template refuses the messages
        """
        model, contents = cast("Model", self), lambda: self.contents
        model.require_tokens()
        ids = encode_prompt(
            prompt, model.loaded, template_args or {}, contents, parse_special=parse_special, limit=limit
        )
        check_ids(ids, model.plan)
        return ids
