"""Fields of other servers that this one lacks: values that match its behaviour are accepted, others refused.

One table, which the server's document shows (`scripts/server_page.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from volumetric.base.hints import format_value
from volumetric.serve.problem import bad_request


@dataclass(frozen=True, slots=True)
class AcceptedValues:
    """Values of a field that match the behaviour of this server.

    Attributes
    ----------
    description : text for messages and the document
    hold : predicate: whether a value is one of them
    """

    description: str
    hold: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ForeignFields:
    """Fields of other servers that are treated the same way.

    Attributes
    ----------
    names : the fields
    of : the servers that have them
    values : the accepted values
    why : reason for refusing other values
    """

    names: tuple[str, ...]
    of: str
    values: AcceptedValues
    why: str


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _only(*values: Any) -> AcceptedValues:
    def hold(value: Any) -> bool:
        return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)

    words = {True: "true", False: "false"}
    return AcceptedValues(
        ", ".join(words.get(one, repr(one)) if isinstance(one, bool) else f"{one!r}" for one in values), hold
    )


ANY: Final = AcceptedValues("any", lambda _: True)
NUMBER: Final = AcceptedValues("any number", _is_number)
BOOL: Final = AcceptedValues("true, false", lambda value: isinstance(value, bool))
EMPTY: Final = AcceptedValues("empty", lambda value: value in ("", [], {}) and not isinstance(value, (bool, int)))
NONE: Final = AcceptedValues("null", lambda _: False)
OFF: Final = AcceptedValues("0 or less", lambda value: _is_number(value) and value <= 0)
FALSE, TRUE = _only(False), _only(True)
SOME: Final = AcceptedValues("1 or more", lambda value: _is_number(value) and value >= 1)

_ONE_WAY: Final = "only temperature, top_k, top_p, min_p and penalties are supported"
_IDLE: Final = "it has an effect only with another field"
_NOT_SHOWN: Final = "special tokens are never part of the text"
_NEVER_CUT: Final = "prompts are never truncated: shorten it"
_OPENED: Final = "the server has its own"
_SAME: Final = "speculative decoding does not change the answer"
_TEXT_ONLY: Final = "this server accepts and returns text only"

TABLE: Final = (
    ForeignFields(("store",), "OpenAI", BOOL, "nothing is stored in either case"),
    ForeignFields(
        ("truncation",), "OpenAI", _only("auto", "disabled"), "nothing is truncated: input that is too long is an error"
    ),
    ForeignFields(("max_tool_calls",), "OpenAI", SOME, "clients call the tools, not this server"),
    ForeignFields(("functions",), "OpenAI", EMPTY, "it is called tools now"),
    ForeignFields(("function_call",), "OpenAI", _only("none", "auto"), "it is called tool_choice now"),
    ForeignFields(("audio",), "OpenAI", NONE, _TEXT_ONLY),
    ForeignFields(("web_search_options",), "OpenAI", NONE, "this server does not search the web"),
    ForeignFields(("echo",), "vLLM, for chats", FALSE, "a chat answer never includes the conversation"),
    ForeignFields(("add_special_tokens",), "vLLM, for chats", FALSE, "the chat template contains the special tokens"),
    ForeignFields(("skip_special_tokens",), "vLLM", TRUE, _NOT_SHOWN),
    ForeignFields(("spaces_between_special_tokens",), "vLLM", BOOL, _NOT_SHOWN),
    ForeignFields(("use_beam_search", "early_stopping"), "vLLM", FALSE, "there is no beam search"),
    ForeignFields(("length_penalty",), "vLLM", _only(1), "there is no beam search"),
    ForeignFields(("prompt_logprobs",), "vLLM", NONE, "echo with logprobs of a text completion scores a prompt"),
    ForeignFields(("truncate_prompt_tokens",), "vLLM", NONE, _NEVER_CUT),
    ForeignFields(("bad_words",), "vLLM", EMPTY, "logit_bias bans tokens"),
    ForeignFields(("return_token_ids", "return_tokens_as_token_ids"), "vLLM", FALSE, "/tokenize returns token ids"),
    ForeignFields(("detokenize",), "vLLM", TRUE, "answers are text"),
    ForeignFields(("documents",), "vLLM", EMPTY, "use chat_template_kwargs to pass values to the template"),
    ForeignFields(("chat_template",), "vLLM", NONE, "the server's --chat-template applies"),
    ForeignFields(("guided_decoding_backend",), "vLLM", ANY, "there is only one"),
    ForeignFields(("guided_whitespace_pattern",), "vLLM", NONE, "white space in JSON has a fixed limit"),
    ForeignFields(
        ("logits_processors", "mm_processor_kwargs", "vllm_xargs", "kv_transfer_params"),
        "vLLM",
        EMPTY,
        "they are not supported",
    ),
    ForeignFields(
        ("cache_prompt",), "llama-server", TRUE, "shared prefixes of prompts are always cached; see cache_salt"
    ),
    ForeignFields(("n_probs",), "llama-server", OFF, "it is called logprobs here"),
    ForeignFields(
        ("post_sampling_probs", "return_tokens", "return_progress"), "llama-server", FALSE, "it is not returned"
    ),
    ForeignFields(("mirostat", "xtc_probability", "dry_multiplier", "dynatemp_range"), "llama-server", OFF, _ONE_WAY),
    ForeignFields(("top_n_sigma",), "llama-server", OFF, _ONE_WAY),
    ForeignFields(("typical_p", "typ_p", "tfs_z", "tfs"), "llama-server, Ollama", _only(1), _ONE_WAY),
    ForeignFields(
        ("mirostat_tau", "mirostat_eta", "xtc_threshold", "dynatemp_exponent"), "llama-server", NUMBER, _IDLE
    ),
    ForeignFields(("dry_base", "dry_allowed_length", "dry_penalty_last_n"), "llama-server", NUMBER, _IDLE),
    ForeignFields(("dry_sequence_breakers",), "llama-server", ANY, _IDLE),
    ForeignFields(("min_keep",), "llama-server", _only(0, 1), _ONE_WAY),
    ForeignFields(("samplers",), "llama-server", NONE, f"their order is fixed: {_ONE_WAY}"),
    ForeignFields(
        ("penalize_nl", "penalize_newline"), "llama-server, Ollama", TRUE, "penalties apply to line breaks, too"
    ),
    ForeignFields(("n_keep", "n_discard", "num_keep"), "llama-server, Ollama", OFF, "nothing is truncated"),
    ForeignFields(("t_max_predict_ms", "n_indent"), "llama-server", OFF, "only max_tokens and stop limit a text"),
    ForeignFields(("id_slot", "slot_id"), "llama-server", _only(-1), "the scheduler chooses"),
    ForeignFields(
        ("grammar_lazy", "thinking_forced_open"), "llama-server", FALSE, "the server decides by the template"
    ),
    ForeignFields(
        ("grammar_triggers", "preserved_tokens", "response_fields"), "llama-server", EMPTY, "they are not supported"
    ),
    ForeignFields(("lora",), "llama-server", EMPTY, "each adapter is served as a separate model: see /v1/models"),
    ForeignFields(("parse_tool_calls",), "llama-server", TRUE, "tool calls are always parsed"),
    ForeignFields(("reasoning_format",), "llama-server", _only("auto", "deepseek"), "the server's --reasoning decides"),
    ForeignFields(
        ("speculative.n_max", "speculative.n_min", "speculative.p_min"),
        "llama-server",
        NUMBER,
        "drafts change no answer",
    ),
    ForeignFields(("keep_alive", "ttl"), "Ollama, LM Studio", ANY, "models stay loaded as long as the server runs"),
    ForeignFields(("options",), "Ollama", EMPTY, "its fields belong to the top level here"),
    ForeignFields(("raw",), "Ollama", FALSE, "prompts of text completions are never templated"),
    ForeignFields(("images", "image_data"), "Ollama, llama-server", EMPTY, _TEXT_ONLY),
    ForeignFields(("format",), "Ollama", EMPTY, "it is called response_format here"),
    ForeignFields(
        ("think", "enable_thinking"), "Ollama, Qwen", NONE, 'use chat_template_kwargs: {"enable_thinking": …}'
    ),
    ForeignFields(("draft_model",), "LM Studio", NONE, _OPENED),
    ForeignFields(("separate_reasoning", "stream_reasoning"), "SGLang", TRUE, "the server's --reasoning decides"),
)
"""Treatment of each field that this server lacks."""
_BY_NAME: Final[Mapping[str, ForeignFields]] = {name: row for row in TABLE for name in row.names}
DROPPED_INCLUDES: Final = frozenset(
    {
        "reasoning.encrypted_content",
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
    }
)
"""Values of ``include`` for parts that this server's responses never have."""


def drop_foreign_fields(
    fields: dict[str, Any], known: frozenset[str] | set[str], *, lenient: bool = False
) -> Iterator[str]:
    """Remove fields of other servers from a body, and yield the names of those that have no effect.

    Parameters
    ----------
    known : fields of this server
    lenient : accept all values

    Raises
    ------
    RequestError : a value requests a behaviour that this server does not have
    """
    for name in (_BY_NAME.keys() - known) & fields.keys():
        row, value = _BY_NAME[name], fields.pop(name)
        if value is None or row.values.hold(value):
            continue
        if not lenient:
            allowed = "" if row.values is NONE else f"; allowed: {row.values.description}"
            raise bad_request(
                f"{name}: {format_value(value)} is refused: {row.why}{allowed}", param=name, code="unsupported_value"
            )
        yield name


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| fields | of | accepted values | reason for refusing others |", "| --- | --- | --- | --- |"]
    for row in TABLE:
        names, values = ", ".join(f"`{name}`" for name in row.names), row.values.description.replace("'", '"')
        lines.append(f"| {names} | {row.of} | {values} | {row.why} |")
    return "\n".join(lines)
