"""Prompts: encodes text, token ids or chat messages to token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError, GenerationError
from volumetric.loaders import LoadedModel
from volumetric.loaders.chat_template import MAX_TEMPLATE_BYTES, ChatTemplate, chat_template
from volumetric.loaders.json_file import read_bytes
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.run.sequence_state import check_input, check_vocabulary

if TYPE_CHECKING:
    from volumetric.loaders.chat_contents import MessageContents
    from volumetric.run.plan import Plan

Message: TypeAlias = Mapping[str, Any]
Prompt: TypeAlias = str | Sequence[int] | NDArray[np.integer] | Sequence[Message]


def encode_prompt(
    prompt: Prompt,
    model: LoadedModel,
    template_args: Mapping[str, Any],
    contents: Callable[[], MessageContents | None],
    *,
    parse_special: bool | None = None,
    limit: int | None = None,
) -> list[int]:
    """Return the token ids of `prompt`; for `limit` see `Tokenizer.encode`.

    Text is encoded with the special tokens that the tokenizer adds. A rendered chat template contains special tokens
    already, so that messages are encoded without.

    Parameters
    ----------
    contents : returns `CompiledModel.contents`
    parse_special : whether control tokens in a text, or in message contents, are parsed; None: only in a text

    Raises
    ------
    GenerationError : the prompt is text for a model without tokenizer, messages for one without chat template, or none
        of text, ids and messages
    """
    if isinstance(prompt, str):
        if parse_special is not False or (plain := contents()) is None:
            return _tokenizer(model).encode(prompt, limit=limit)
        return plain.encode(plain.data(prompt), add_special_tokens=True, limit=limit)
    items = items_of(prompt, "a prompt is text, token ids or chat messages")
    if set(map(type, items)) == {int}:  # the common case; the general check takes ten times as long
        return items
    if all(isinstance(item, Integral) and not isinstance(item, bool) for item in items):
        return [int(item) for item in items]
    check_messages(items)
    if model.chat_template is None:
        raise GenerationError(f"{model.name} has no chat template", hint="pass plain text as the prompt, or a template")
    if not isinstance(template_args, Mapping):
        raise GenerationError(f"template_args must map names to values, got {type(template_args).__name__}")
    if "messages" in template_args:
        raise GenerationError("template arguments cannot replace the messages")
    plain = None if parse_special else contents()
    if plain is None:
        text = model.chat_template.render(items, **template_args)
        return _tokenizer(model).encode(text, add_special_tokens=False, limit=limit)
    return plain.encode(plain.render(plain.messages(items), **plain.data(template_args)), limit=limit)


def check_ids(ids: Sequence[int] | NDArray[np.integer], plan: Plan) -> NDArray[np.int32]:
    """Convert token ids to int32 ``[T]``.

    Raises
    ------
    GenerationError : there are none, one is not a whole number, or one is outside of the vocabulary
    """
    try:
        array = np.array(ids)
    except (OverflowError, TypeError, ValueError) as error:
        raise GenerationError(f"token ids must be a list of whole numbers: {error}") from None
    if array.size == 0:
        raise GenerationError("the prompt is empty", hint="pass some text, or the ids of at least one token")
    if array.ndim != 1:
        raise GenerationError(f"token ids must be a list of whole numbers, got an array of shape {array.shape}")
    if array.dtype.kind == "O" and all(isinstance(one, int) for one in array):  # NumPy has no integers beyond 64 bits
        raise GenerationError(f"token ids must be far below 2⁶⁴, got {min(array)} to {max(array)}")
    if array.dtype.kind not in "iu":
        raise GenerationError(f"token ids must be a list of whole numbers, got {array.dtype}")
    rows = check_input(plan, array)
    check_vocabulary(plan, rows)
    return rows


def items_of(value: Any, rule: str) -> list[Any]:
    """Return the items of an ordered collection that is neither text nor bytes.

    Raises
    ------
    GenerationError : `value` is something else; the message is `rule` and the type
    """
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise GenerationError(f"{rule}, got an array of shape {value.shape}", hint="one row is one prompt")
    hints = {
        bytes: "convert bytes to text with bytes.decode()",
        Mapping: "put it into a list",
        str: "put it into a list",
    }
    odd = isinstance(value, (bytes, bytearray, memoryview, Mapping, str, Set)) or not isinstance(value, Iterable)
    if odd:
        hint = next((hint for kind, hint in hints.items() if isinstance(value, kind)), None)
        raise GenerationError(f"{rule}, got {type(value).__name__}", hint=hint)
    return list(value)


def check_messages(items: Sequence[Any]) -> None:
    """Raise `GenerationError` unless all items are chat messages."""
    for item in items:
        if not isinstance(item, Mapping):
            raise GenerationError(
                f"a prompt is text, token ids or chat messages, got a list of {type(item).__name__}",
                hint='a chat message is a mapping: {"role": "user", "content": "…"}',
            )


def _tokenizer(model: LoadedModel) -> Tokenizer:
    if model.tokenizer is None:
        raise GenerationError(f"{model.name} has no tokenizer", hint="pass token ids as the prompt")
    return model.tokenizer


def read_template(template: str | Path, model: LoadedModel) -> ChatTemplate:
    """Return a chat template from its source or file, with the model's special tokens.

    Raises
    ------
    GenerationError : `template` is neither Jinja source nor a readable file
    """
    if not isinstance(template, (str, Path)):
        raise GenerationError(f"chat template: expected text or a path, got {type(template).__name__}")
    text = str(template)
    if isinstance(template, Path) or not any(mark in text for mark in ("{{", "{%")):
        try:
            text = read_bytes(Path(template), MAX_TEMPLATE_BYTES).decode()
        except (CheckpointError, ValueError) as error:
            raise GenerationError(f"chat template: {error}", hint="pass Jinja source, or a file with it") from error
    special = model.tokenizer.special_tokens if model.tokenizer else {}
    return chat_template({"default": text}, special, "the given chat template")
