"""Contents: message data passes through a chat template without ever becoming a control token.

A template writes control tokens around the messages, and its output is one text: ``<|im_end|>`` in a message would look
like that of the template. So the first characters of control tokens are replaced in all data by marks, halves of
surrogate pairs, which no text contains: a mark cannot be forged. Marks move with the text; a template may trim, split,
join and repeat. In the output, control tokens without a mark come from the template, and those with a mark are text.

Marks would hide text that a template searches for in messages. So string constants of the template are not marked,
unless a control token begins there; and in messages of the assistant, strings that the template searches for, such as
``</think>``, and its markup are not marked: the model wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import GenerationError
from volumetric.loaders.control_tokens import ControlTokens, any_of
from volumetric.loaders.tokenizer import HALF, Tokenizer, check_halves

if TYPE_CHECKING:
    from volumetric.loaders.chat_template import ChatTemplate

FIRST: Final = 0xDC00
"""Mark of the character 0; marks of the other ASCII characters follow in order."""
OTHERS: Final = FIRST + 128
"""First mark of characters beyond ASCII; each `MessageContents` numbers these."""
MOST_OTHERS: Final = 512
END: Final = "\udfff"
"""Marks no character, but the end of a message that will be continued."""
MARKED: Final = re.compile(f"[{chr(FIRST)}-{chr(OTHERS + MOST_OTHERS - 1)}]")
_ASCII: Final = {FIRST + code: chr(code) for code in range(128)}
_IN_JSON: Final = {FIRST + code: json.dumps(chr(code))[1:-1] for code in (*range(32), ord('"'), ord("\\"))}
_IN_HTML: Final = {
    FIRST + ord(char): text
    for char, text in {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"}.items()
}
_NUMBERED: Final = re.compile(r"\\\\|\\u(d[c-f][0-9a-f]{2})")
_ESCAPED: Final = re.compile(f"[^\x00-\x7e{chr(FIRST)}-{END}]")
_ASSISTANT: Final = "assistant"


def mark_of(char: str) -> str:
    """Return the mark of an ASCII character."""
    return chr(FIRST + ord(char))


def remove_marks(text: str) -> str:
    """Return a text with its marks replaced by their ASCII characters."""
    return text.translate(_ASCII) if MARKED.search(text) else text


def readable(text: str) -> str:
    """Return a text for an error message, which can always be encoded."""
    return HALF.sub("\ufffd", remove_marks(text))


def json_with_marks(text: str, *, ascii_only: bool) -> str:
    """Return JSON that was written with marks as without; marks that JSON does not escape remain.

    Parameters
    ----------
    ascii_only : whether to write characters beyond ASCII as escapes
    """
    if ascii_only:
        text = _ESCAPED.sub(lambda match: json.dumps(match[0])[1:-1], text)
    return text.translate(_IN_JSON) if MARKED.search(text) else text


def html_with_marks(text: Any) -> Any:
    """Return an HTML-escaped text as without marks."""
    return type(text)(str(text).translate(_IN_HTML)) if isinstance(text, str) and MARKED.search(text) else text


class MarkedDict(dict[Any, Any]):
    """A dictionary whose string form shows marks directly, not as escapes."""

    def __repr__(self) -> str:
        return repr_with_marks(super().__repr__())


class MarkedList(list[Any]):
    """A list whose string form shows marks directly, not as escapes."""

    def __repr__(self) -> str:
        return repr_with_marks(super().__repr__())


def repr_with_marks(text: str) -> str:
    """Return the output of `repr` with marks instead of their escapes."""
    return _NUMBERED.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[0], text)


class MessageContents:
    """Conversations of a model in which only the template writes control tokens.

    Parameters
    ----------
    tokenizer, template : of the model; without a template only plain texts are supported
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        constants = template.constants if template is not None else frozenset()
        sought = template.sought_texts if template is not None else frozenset()
        self._tokenizer = tokenizer
        self._template = template
        self._control = ControlTokens(tokenizer, "\n".join(template.templates.values()) if template is not None else "")
        starts = sorted({text[0] for text in self._control.texts})
        beyond = [char for char in starts if not char.isascii()][:MOST_OTHERS]
        self._marks = {char: mark_of(char) for char in starts if char.isascii()}
        self._marks |= {char: chr(OTHERS + i) for i, char in enumerate(beyond)}
        self._restored = {ord(mark): char for char, mark in self._marks.items() if not char.isascii()}
        # Letters and spaces begin many words, and templates trim: mark them only at the start of a control token.
        common = re.escape("".join(char for char in self._marks if not (char.isalnum() or char.isspace())))
        left = any_of(one[at:] for one in constants for at in range(len(one)) if one[at] in self._marks)
        control = self._control.pattern.pattern
        begins = f"(?={control}).|(?!{left})[{common}]" if common else control
        self._data = re.compile(begins, re.DOTALL)
        own = [*map(re.escape, self._control.markup), *self._control_starts(sought)]
        self._own = re.compile(f"(?!{'|'.join(own)})(?:{begins})" if own else begins, re.DOTALL)

    def _control_starts(self, sought: frozenset[str]) -> list[str]:
        """Return regular expressions for starts of control tokens in strings that a template searches for."""
        return [
            f"(?<={re.escape(one[: match.start()])}){re.escape(one[match.start() :])}"
            for one in sorted(sought)
            for match in self._control.pattern.finditer(one)
        ]

    def messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return messages as input for the template. Raises `GenerationError`."""
        return [self.data(message, own=message.get("role") == _ASSISTANT) for message in messages]

    def data(self, value: Any, *, own: bool = False) -> Any:
        """Return a value, with all nested values, as input for the template.

        Parameters
        ----------
        own : whether it is in a message of the assistant

        Raises
        ------
        GenerationError : a text contains half of a surrogate pair, or the value is nested too deeply
        """
        try:
            return self._mark(value, self._own if own else self._data)
        except RecursionError:
            raise GenerationError("a message is nested too deeply") from None

    def _mark(self, value: Any, pattern: re.Pattern[str]) -> Any:
        if isinstance(value, str):
            check_halves(value)
            marks = self._marks
            return pattern.sub(lambda match: marks[match[0][0]] + match[0][1:], value) if marks else value
        if isinstance(value, Mapping):
            return MarkedDict({self._mark(key, pattern): self._mark(one, pattern) for key, one in value.items()})
        if isinstance(value, (list, tuple)):
            return MarkedList(self._mark(one, pattern) for one in value)
        return value

    def encode(self, text: str, *, add_special_tokens: bool = False, limit: int | None = None) -> list[int]:
        """Return the token ids of a text with marks; control tokens that begin with a mark are text.

        For `limit` see `Tokenizer.encode`.
        """
        plain = self._plain(text)
        if limit is not None:
            self._tokenizer.check_length(plain, limit)
        control = self._control.pattern
        if any(control.match(plain, match.start()) for match in MARKED.finditer(text)):
            return self._control.encode(self._plain, text, add_special_tokens=add_special_tokens)
        return self._tokenizer.encode(plain, add_special_tokens=add_special_tokens)

    def _plain(self, text: str) -> str:
        text = remove_marks(text)
        return text.translate(self._restored) if self._restored else text

    def render(self, messages: Sequence[Mapping[str, Any]], /, **args: Any) -> str:
        """Return a conversation as text with marks. Raises `GenerationError`."""
        if self._template is None:
            raise GenerationError("the model has no chat template")
        return self._template.render(MarkedList(map(MarkedDict, messages)), **args)

    def render_beginning(self, messages: Sequence[Mapping[str, Any]], /, **args: Any) -> str:
        """Return a conversation as text that ends with the last message, so it can be continued.

        White space around the last message is removed if the template removes it.

        Raises
        ------
        GenerationError : the template rejects the messages, leaves out the last one, or changes it
        """
        content: str = messages[-1]["content"] or ""
        head, trims = self._cut_after_last_message(messages, content, args)
        if content.isspace() and head == self._cut_after_last_message(messages, "", args)[0]:
            return head
        shown = content if head.endswith(content) else content.lstrip()
        if not head.endswith(shown):
            raise _unfit("changes the text of the last message")
        return head[: len(head) - len(shown) + len(shown.rstrip())] if trims else head

    def _cut_after_last_message(
        self, messages: Sequence[Mapping[str, Any]], content: str, args: Mapping[str, Any]
    ) -> tuple[str, bool]:
        """Return the output up to the end of the last message's text, and whether white space there is removed."""
        *before, last = messages
        head, end, behind = self.render([*before, {**last, "content": f"{content}{END} "}], **args).rpartition(END)
        if not end:
            raise _unfit("leaves the last message out")
        return head.replace(END, ""), not behind.startswith(" ")


def _unfit(what: str) -> GenerationError:
    return GenerationError(
        f"the chat template {what}, so it cannot be continued",
        hint="send the text to continue as the prompt of a text completion",
    )
