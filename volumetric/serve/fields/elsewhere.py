"""Fields of other servers that this one lacks: values that match its behaviour are accepted, others refused.

One table, which the server's document shows (`scripts/server_page.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from volumetric.base.hints import shown
from volumetric.serve.problem import bad


@dataclass(frozen=True, slots=True)
class Values:
    """Values of a field that match the behaviour of this server.

    Attributes
    ----------
    description : text for messages and the document
    hold : predicate: whether a value is one of them
    """

    description: str
    hold: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Elsewhere:
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
    values: Values
    why: str


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _only(*values: Any) -> Values:
    def hold(value: Any) -> bool:
        return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)

    words = {True: "true", False: "false"}
    return Values(", ".join(words.get(one, repr(one)) if isinstance(one, bool) else f"{one!r}" for one in values), hold)


ANY: Final = Values("any", lambda _: True)
NUMBER: Final = Values("any number", _is_number)
BOOL: Final = Values("true, false", lambda value: isinstance(value, bool))
EMPTY: Final = Values("empty", lambda value: value in ("", [], {}) and not isinstance(value, (bool, int)))
NONE: Final = Values("null", lambda _: False)
OFF: Final = Values("0 or less", lambda value: _is_number(value) and value <= 0)
FALSE, TRUE = _only(False), _only(True)
SOME: Final = Values("1 or more", lambda value: _is_number(value) and value >= 1)

_ONE_WAY: Final = "only temperature, top_k, top_p, min_p and penalties are supported"
_IDLE: Final = "it has an effect only with another field"
_NOT_SHOWN: Final = "special tokens are never part of the text"
_NEVER_CUT: Final = "prompts are never truncated: shorten it"
_OPENED: Final = "the server has its own"
_SAME: Final = "speculative decoding does not change the answer"
_TEXT_ONLY: Final = "this server accepts and returns text only"

TABLE: Final = (
    Elsewhere(("store",), "OpenAI", BOOL, "nothing is stored in either case"),
    Elsewhere(
        ("truncation",), "OpenAI", _only("auto", "disabled"), "nothing is truncated: input that is too long is an error"
    ),
    Elsewhere(("max_tool_calls",), "OpenAI", SOME, "clients call the tools, not this server"),
    Elsewhere(("functions",), "OpenAI", EMPTY, "it is called tools now"),
    Elsewhere(("function_call",), "OpenAI", _only("none", "auto"), "it is called tool_choice now"),
    Elsewhere(("audio",), "OpenAI", NONE, _TEXT_ONLY),
    Elsewhere(("web_search_options",), "OpenAI", NONE, "this server does not search the web"),
    Elsewhere(("echo",), "vLLM, for chats", FALSE, "a chat answer never includes the conversation"),
    Elsewhere(("add_special_tokens",), "vLLM, for chats", FALSE, "the chat template contains the special tokens"),
    Elsewhere(("skip_special_tokens",), "vLLM", TRUE, _NOT_SHOWN),
    Elsewhere(("spaces_between_special_tokens",), "vLLM", BOOL, _NOT_SHOWN),
    Elsewhere(("use_beam_search", "early_stopping"), "vLLM", FALSE, "there is no beam search"),
    Elsewhere(("length_penalty",), "vLLM", _only(1), "there is no beam search"),
    Elsewhere(("prompt_logprobs",), "vLLM", NONE, "echo with logprobs of a text completion scores a prompt"),
    Elsewhere(("truncate_prompt_tokens",), "vLLM", NONE, _NEVER_CUT),
    Elsewhere(("bad_words",), "vLLM", EMPTY, "logit_bias bans tokens"),
    Elsewhere(("return_token_ids", "return_tokens_as_token_ids"), "vLLM", FALSE, "/tokenize returns token ids"),
    Elsewhere(("detokenize",), "vLLM", TRUE, "answers are text"),
    Elsewhere(("documents",), "vLLM", EMPTY, "use chat_template_kwargs to pass values to the template"),
    Elsewhere(("chat_template",), "vLLM", NONE, "the server's --chat-template applies"),
    Elsewhere(("guided_decoding_backend",), "vLLM", ANY, "there is only one"),
    Elsewhere(("guided_whitespace_pattern",), "vLLM", NONE, "white space in JSON has a fixed limit"),
    Elsewhere(
        ("logits_processors", "mm_processor_kwargs", "vllm_xargs", "kv_transfer_params"),
        "vLLM",
        EMPTY,
        "they are not supported",
    ),
    Elsewhere(("cache_prompt",), "llama-server", TRUE, "shared prefixes of prompts are always cached; see cache_salt"),
    Elsewhere(("n_probs",), "llama-server", OFF, "it is called logprobs here"),
    Elsewhere(("post_sampling_probs", "return_tokens", "return_progress"), "llama-server", FALSE, "it is not returned"),
    Elsewhere(("mirostat", "xtc_probability", "dry_multiplier", "dynatemp_range"), "llama-server", OFF, _ONE_WAY),
    Elsewhere(("top_n_sigma",), "llama-server", OFF, _ONE_WAY),
    Elsewhere(("typical_p", "typ_p", "tfs_z", "tfs"), "llama-server, Ollama", _only(1), _ONE_WAY),
    Elsewhere(("mirostat_tau", "mirostat_eta", "xtc_threshold", "dynatemp_exponent"), "llama-server", NUMBER, _IDLE),
    Elsewhere(("dry_base", "dry_allowed_length", "dry_penalty_last_n"), "llama-server", NUMBER, _IDLE),
    Elsewhere(("dry_sequence_breakers",), "llama-server", ANY, _IDLE),
    Elsewhere(("min_keep",), "llama-server", _only(0, 1), _ONE_WAY),
    Elsewhere(("samplers",), "llama-server", NONE, f"their order is fixed: {_ONE_WAY}"),
    Elsewhere(("penalize_nl", "penalize_newline"), "llama-server, Ollama", TRUE, "penalties apply to line breaks, too"),
    Elsewhere(("n_keep", "n_discard", "num_keep"), "llama-server, Ollama", OFF, "nothing is truncated"),
    Elsewhere(("t_max_predict_ms", "n_indent"), "llama-server", OFF, "only max_tokens and stop limit a text"),
    Elsewhere(("id_slot", "slot_id"), "llama-server", _only(-1), "the scheduler chooses"),
    Elsewhere(("grammar_lazy", "thinking_forced_open"), "llama-server", FALSE, "the server decides by the template"),
    Elsewhere(
        ("grammar_triggers", "preserved_tokens", "response_fields"), "llama-server", EMPTY, "they are not supported"
    ),
    Elsewhere(("lora",), "llama-server", EMPTY, "each adapter is served as a separate model: see /v1/models"),
    Elsewhere(("parse_tool_calls",), "llama-server", TRUE, "tool calls are always parsed"),
    Elsewhere(("reasoning_format",), "llama-server", _only("auto", "deepseek"), "the server's --reasoning decides"),
    Elsewhere(
        ("speculative.n_max", "speculative.n_min", "speculative.p_min"),
        "llama-server",
        NUMBER,
        "drafts change no answer",
    ),
    Elsewhere(("keep_alive", "ttl"), "Ollama, LM Studio", ANY, "models stay loaded as long as the server runs"),
    Elsewhere(("options",), "Ollama", EMPTY, "its fields belong to the top level here"),
    Elsewhere(("raw",), "Ollama", FALSE, "prompts of text completions are never templated"),
    Elsewhere(("images", "image_data"), "Ollama, llama-server", EMPTY, _TEXT_ONLY),
    Elsewhere(("format",), "Ollama", EMPTY, "it is called response_format here"),
    Elsewhere(("think", "enable_thinking"), "Ollama, Qwen", NONE, 'use chat_template_kwargs: {"enable_thinking": …}'),
    Elsewhere(("draft_model",), "LM Studio", NONE, _OPENED),
    Elsewhere(("separate_reasoning", "stream_reasoning"), "SGLang", TRUE, "the server's --reasoning decides"),
)
"""Treatment of each field that this server lacks."""
_BY_NAME: Final[Mapping[str, Elsewhere]] = {name: row for row in TABLE for name in row.names}
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


def settled(fields: dict[str, Any], known: frozenset[str] | set[str], *, lenient: bool = False) -> Iterator[str]:
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
            raise bad(f"{name}: {shown(value)} is refused: {row.why}{allowed}", param=name, code="unsupported_value")
        yield name


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| fields | of | accepted values | reason for refusing others |", "| --- | --- | --- | --- |"]
    for row in TABLE:
        names, values = ", ".join(f"`{name}`" for name in row.names), row.values.description.replace("'", '"')
        lines.append(f"| {names} | {row.of} | {values} | {row.why} |")
    return "\n".join(lines)
