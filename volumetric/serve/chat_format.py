"""Chat formats: channels, tool calls and reasoning marks, read from a model's chat template once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from volumetric.serve.harmony import HarmonyFormat, harmony_of
from volumetric.serve.reasoning import ReasoningFormat, reasoning_format_of
from volumetric.serve.tools.call_form import CallForm
from volumetric.serve.tools.call_form_families import Telling, form_of


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How a model writes its answers.

    Attributes
    ----------
    source : Jinja source of the template; empty if there is none
    channels : harmony channels, if the model has them
    calls : format of tool calls
    telling : how the model learns of tools, see `volumetric.serve.tools.call_form_families.Telling`
    thinking : marks of reasoning, if the model has them
    plain : without tools and constraints, all generated text is content
    """

    source: str
    channels: HarmonyFormat | None
    calls: CallForm
    telling: Telling
    thinking: ReasoningFormat | None
    plain: bool


def chat_format(source: str, special_id: Callable[[str], int | None]) -> ChatFormat:
    """Return the format of a chat template.

    Parameters
    ----------
    special_id : returns the id of a special token
    """
    channels, thinking = harmony_of(source, special_id), reasoning_format_of(source, "", special_id)
    calls, telling = form_of(source, special_id)
    plain = channels is None and thinking is None and not (calls.aloud or calls.spoken)
    return ChatFormat(source, channels, calls, telling, thinking, plain)
