"""Chat formats: what the chat template of a model teaches it, read out of the template once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from volumetric.serve.channels import Harmony, harmony_of
from volumetric.serve.reasoning import Thinking, thinking_of
from volumetric.serve.tools.families import Telling, form_of
from volumetric.serve.tools.form import CallForm


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How a model writes its answers.

    Attributes
    ----------
    source : Jinja source of the template; empty without one
    channels : of the model, if it has some
    calls : form of its calls
    telling : who tells it of tools
    thinking : its marks of reasoning, if it has some
    plain : without tools and forms, all that it writes is said
    """

    source: str
    channels: Harmony | None
    calls: CallForm
    telling: Telling
    thinking: Thinking | None
    plain: bool


def chat_format(source: str, special_id: Callable[[str], int | None]) -> ChatFormat:
    """Return the format that a chat template teaches.

    Parameters
    ----------
    special_id : gives the ids of special tokens
    """
    channels, thinking = harmony_of(source, special_id), thinking_of(source, "", special_id)
    calls, telling = form_of(source, special_id)
    plain = channels is None and thinking is None and not (calls.aloud or calls.spoken)
    return ChatFormat(source, channels, calls, telling, thinking, plain)
