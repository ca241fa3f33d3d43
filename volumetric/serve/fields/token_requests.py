"""Request bodies of the tokenizer endpoints, in vLLM's format."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from volumetric.serve.fields.chat_request import MOST_MESSAGES, Message

MOST_TOKENS: Final = 2**20


class TokenizeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``POST /tokenize``: a text, or a conversation as the model's template writes it.

    Control tokens in a text are parsed unless `parse_special`, llama-server's field, is false. In messages they are
    parsed as in chats, unless the field is set.
    """

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(max_length=MOST_MESSAGES)] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None
    parse_special: bool | None = None


class DetokenizeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``POST /detokenize``."""

    tokens: Annotated[list[int], Meta(max_length=MOST_TOKENS)]
    model: str | None = None
