"""Chat templates: Jinja in an immutable sandbox, as in transformers, with bounded time and memory."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import CheckpointError, GenerationError
from volumetric.loaders.chat_contents import MarkedList, json_with_marks, readable
from volumetric.loaders.json_file import read_bytes

if TYPE_CHECKING:
    import jinja2

logger: logging.Logger = logging.getLogger(__name__)

MAX_TEMPLATE_BYTES: Final = 250_000
"""Ten times the longest templates of known models; it bounds the compile time."""
MAX_OUTPUT: Final = 8_000_000
"""Maximum characters of a rendered conversation."""
MAX_INDENT: Final = 64
MAX_SEPARATOR: Final = 16
SMALL_JSON: Final = 5000
"""Size of values that indentation cannot make too long: they have at most 300 items, and no deeper nesting."""
MAX_DATE: Final = 1000


class ChatTemplate:
    """A chat template, compiled when first rendered.

    Parameters
    ----------
    templates : name → Jinja source; ``tool_use``, if present, is used with tools, else ``default``
    special_tokens : names that the template may use, such as ``bos_token``
    where : file name for log output
    """

    def __init__(self, templates: Mapping[str, str], special_tokens: Mapping[str, str], where: str) -> None:
        self.templates: dict[str, str] = dict(templates)
        self._special_tokens = dict(special_tokens)
        self._where = where
        self._compiled: dict[str, jinja2.Template] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pass the sources to another process."""
        return ChatTemplate, (self.templates, self._special_tokens, self._where)

    @property
    def source(self) -> str:
        """Jinja source of the template for plain conversations."""
        return self.templates.get("default") or next(iter(self.templates.values()))

    def source_for(self, *, tools: bool) -> str:
        """Return the Jinja source of the template for conversations with or without tools."""
        name = "tool_use" if tools and "tool_use" in self.templates else "default"
        return self.templates.get(name, self.source)

    @property
    def constants(self) -> frozenset[str]:
        """String constants in the templates."""
        return self._constants_and_sought[0]

    @property
    def sought_texts(self) -> frozenset[str]:
        """String constants that the templates search for in other texts."""
        return self._constants_and_sought[1]

    @cached_property
    def _constants_and_sought(self) -> tuple[frozenset[str], frozenset[str]]:
        import jinja2

        from volumetric.loaders.chat_sandbox import constants_in

        pairs = [(frozenset[str](), frozenset[str]())]
        for source in self.templates.values():
            try:
                pairs.append(constants_in(self._environment.parse(source)))
            except (GenerationError, jinja2.TemplateSyntaxError, RecursionError):
                continue  # an invalid template raises when it is used
        constants, sought = zip(*pairs, strict=True)
        return frozenset().union(*constants), frozenset().union(*sought)

    @cached_property
    def _environment(self) -> Any:
        from volumetric.loaders.chat_sandbox import sandbox

        return sandbox(_tojson, _raise_exception, _strftime_now)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **args: Any,
    ) -> str:
        """Return the conversation as text in the model's training format.

        Parameters
        ----------
        messages : each has a ``role`` and usually a ``content``
        add_generation_prompt : whether the text ends with the start of the assistant's answer
        tools : descriptions of functions that the model may call
        args : further variables for the template, such as ``enable_thinking``

        Raises
        ------
        GenerationError
            The template raises an error (its message is included), is not valid Jinja, or exceeds a limit.
        """
        import jinja2

        from volumetric.loaders.chat_budget import RenderBudget

        if not all(isinstance(message, Mapping) for message in messages):
            raise GenerationError("a chat message must be an object", hint='{"role": "user", "content": "…"}')
        listed = messages if isinstance(messages, MarkedList) else [dict(message) for message in messages]
        conversation = {"messages": listed, "add_generation_prompt": add_generation_prompt}
        names = {**self._special_tokens, "documents": None, **args, **conversation, "tools": tools}
        pieces: list[str] = []
        size = 0
        try:
            with RenderBudget.for_rendering():
                template = self._template(self.source_for(tools=bool(tools)))
                for piece in template.generate(names):
                    size += len(piece)
                    if size > MAX_OUTPUT:
                        raise GenerationError(f"the chat template writes more than {MAX_OUTPUT} characters")
                    pieces.append(piece)
        except GenerationError:
            raise
        except jinja2.TemplateSyntaxError as error:
            # Clients of a server see the error, but not its files.
            logger.warning("%s: line %d of the chat template: %s", self._where, error.lineno, error.message)
            raise GenerationError(f"line {error.lineno} of the chat template: {error.message}") from error
        except jinja2.TemplateError as error:
            reason = readable(str(error.message or error))
            raise GenerationError(f"the chat template rejects the messages: {reason}") from error
        except Exception as error:  # a template is a program: it can raise any Python error
            reason = readable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            raise GenerationError(
                f"the chat template fails: {reason[:300]}",
                hint=("check that the messages have the fields that the template expects"),
            ) from error
        return "".join(pieces)

    def _template(self, source: str) -> jinja2.Template:
        if source not in self._compiled:
            self._compiled[source] = self._environment.from_string(source)
        return self._compiled[source]


def _raise_exception(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    if len(form) > MAX_DATE:
        raise ValueError(f"strftime_now: a format has at most {MAX_DATE} characters, got {len(form)}")
    return dt.datetime.now().strftime(form)  # local time, as in transformers


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes; Jinja's own filter would escape ``<`` and ``&``."""
    from volumetric.loaders.chat_budget import current

    if indent is not None and not 0 <= indent <= MAX_INDENT:
        raise ValueError(f"tojson: indent must be 0 to {MAX_INDENT}, got {indent}")
    if separators is not None and any(len(separator) > MAX_SEPARATOR for separator in separators):
        raise ValueError(f"tojson: a separator has at most {MAX_SEPARATOR} characters")
    budget = current()
    size = budget.check_operand(value)
    budget.check_size(2 * size)  # escaping may make six characters of one
    encoder = json.JSONEncoder(ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None or size < SMALL_JSON:
        return budget.count_result(json_with_marks(encoder.encode(value), ascii_only=ensure_ascii))
    pieces, size = list[str](), 0
    for piece in encoder.iterencode(value):  # indentation makes deep values longer, so their output is bounded
        size += len(piece)
        budget.count_work(1)
        budget.check_size(size)
        pieces.append(piece)
    return budget.count_result(json_with_marks("".join(pieces), ascii_only=ensure_ascii))


def read_chat_template(
    directory: Path, config: Mapping[str, Any], special_tokens: Mapping[str, str]
) -> ChatTemplate | None:
    """Return the chat template of a Hugging Face directory: chat_template.jinja, else from tokenizer_config.json.

    Raises
    ------
    CheckpointError
        A template is not a string, or too long.
    """
    path = directory / "chat_template.jinja"
    if path.is_file():
        templates = {"default": _text(path)}
        for extra in sorted(directory.glob("additional_chat_templates/*.jinja")):
            templates[extra.stem] = _text(extra)
        return ChatTemplate(templates, special_tokens, str(path))
    where = str(directory / "tokenizer_config.json")
    template = config.get("chat_template")
    if template is None:
        return None
    templates = {"default": template} if isinstance(template, str) else _named_templates(template, where)
    return chat_template(templates, special_tokens, where)


def chat_template(templates: Mapping[str, str], special_tokens: Mapping[str, str], where: str) -> ChatTemplate:
    """Return a chat template. Raises `CheckpointError` if its source is too long."""
    for source in templates.values():
        if len(source) > MAX_TEMPLATE_BYTES:
            raise CheckpointError(
                f"{where}: the chat template has {len(source)} characters, the limit is {MAX_TEMPLATE_BYTES}"
            )
    return ChatTemplate(templates, special_tokens, where)


def _text(path: Path) -> str:
    try:
        return read_bytes(path, MAX_TEMPLATE_BYTES).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8") from error


def _named_templates(entries: object, where: str) -> dict[str, str]:
    """Parse the list form of templates, ``[{"name": "default", "template": "…"}, …]``."""
    if not isinstance(entries, list) or not entries:
        raise CheckpointError(f"{where}: chat_template is neither a string nor a list of named templates")
    templates: dict[str, str] = {}
    for item in entries:
        name, source = (item.get("name"), item.get("template")) if isinstance(item, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(source, str):
            raise CheckpointError(f"{where}: an entry of chat_template has no name or no template")
        templates[name] = source
    return templates
