"""Prompts: text, token ids or chat messages become token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import GenerationError
from volumetric.loaders import LoadedModel
from volumetric.loaders.chat import ChatTemplate, chat_template
from volumetric.loaders.tokenizer import Tokenizer

Message: TypeAlias = Mapping[str, Any]
Prompt: TypeAlias = str | Sequence[int] | NDArray[np.integer] | Sequence[Message]


def encode_prompt(prompt: Prompt, model: LoadedModel, template_args: Mapping[str, Any]) -> list[int]:
    """Return the token ids of `prompt`.

    Text is encoded with the special tokens that the model's tokenizer puts around a text. A rendered chat template
    holds its own, so messages are encoded without.

    Raises
    ------
    GenerationError : text for a model without tokenizer, messages for one without chat template, or neither text,
        ids nor messages
    """
    if isinstance(prompt, str):
        return _tokenizer(model).encode(prompt)
    items: list[Any] = list(prompt)
    if all(isinstance(item, Integral) and not isinstance(item, bool) for item in items):
        return [int(item) for item in items]
    if not all(isinstance(item, Mapping) for item in items):
        raise GenerationError(
            f"a prompt is text, token ids or chat messages, got a list of {type(items[0]).__name__}",
            hint='a chat message is a mapping: {"role": "user", "content": "…"}',
        )
    if model.chat_template is None:
        raise GenerationError(f"{model.name} has no chat template", hint="give a plain text as prompt, or a template")
    if "messages" in template_args:
        raise GenerationError("template arguments cannot replace the messages")
    text = model.chat_template.render(items, **template_args)
    return _tokenizer(model).encode(text, add_special_tokens=False)


def _tokenizer(model: LoadedModel) -> Tokenizer:
    if model.tokenizer is None:
        raise GenerationError(f"{model.name} has no tokenizer", hint="give token ids as prompt")
    return model.tokenizer


def read_template(given: str | Path, model: LoadedModel) -> ChatTemplate:
    """Return the chat template that `given` is, or whose file it names, with the model's special tokens.

    Raises
    ------
    GenerationError : `given` is neither Jinja nor a file that can be read
    """
    text = str(given)
    if isinstance(given, Path) or not any(mark in text for mark in ("{{", "{%")):
        try:
            text = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise GenerationError(f"chat template: {error}", hint="give Jinja source, or a file of it") from error
    special = model.tokenizer.special_tokens if model.tokenizer else {}
    return chat_template({"default": text}, special, "the given chat template")
