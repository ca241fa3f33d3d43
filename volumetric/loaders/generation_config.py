"""Generation defaults: end-of-text ids from all files, and sampling values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from volumetric.base.errors import CheckpointError

END_OF_TURN: Final = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|end_of_turn|>", "<|endoftext|>"}
    | {"<|end_of_text|>", "<|return|>", "<|eot|>", "</s>", "<|END_OF_TURN_TOKEN|>", "<EOT>", "<turn|>"}
)
"""Known tokens that end a turn or a text; a token counts if the chat template writes it and the vocabulary has it."""
_TOKEN_IN_TEMPLATE: Final = re.compile("|".join(sorted(map(re.escape, END_OF_TURN))))


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """Generation settings in a model's files; None if they have none.

    Attributes
    ----------
    eos_ids : ids that end a text: the union of config, generation config, tokenizer and chat template
    bos_id, pad_id : begin-of-text and padding ids; None for invalid ids, such as the -1 of older configurations
    do_sample : whether to sample; otherwise temperature, top_k, top_p and min_p are ignored
    repetition_penalty, max_new_tokens : also used in greedy decoding
    """

    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None
    pad_id: int | None = None
    do_sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None


def read_generation(
    configs: Iterable[Mapping[str, Any]], more_eos: Iterable[int | None], vocabulary: int, where: str
) -> GenerationDefaults:
    """Merge several configurations; for values other than EOS, the last configuration that has one wins.

    Parameters
    ----------
    configs : config.json first, generation_config.json last
    more_eos : ids from the tokenizer and the template; those outside the vocabulary are ignored
    vocabulary : rows of the embedding; configured ids outside it are an error

    Raises
    ------
    CheckpointError
        A value has the wrong type, or an id is outside the vocabulary.
    """
    configs = list(configs)
    joined = {key: value for config in configs for key, value in config.items() if value is not None}
    eos = {id for config in configs for id in _ids(config.get("eos_token_id"), where)}
    outside = sorted(id for id in eos if not 0 <= id < vocabulary)
    if outside:
        raise CheckpointError(f"{where}: eos_token_id {outside[0]} is outside the vocabulary of {vocabulary} tokens")
    eos |= {id for id in more_eos if id is not None and 0 <= id < vocabulary}
    return GenerationDefaults(
        eos_ids=tuple(sorted(eos)),
        bos_id=_first_valid_id(joined.get("bos_token_id"), vocabulary, where),
        pad_id=_first_valid_id(joined.get("pad_token_id"), vocabulary, where),
        do_sample=joined.get("do_sample") is True,
        temperature=_number(joined, "temperature", where),
        top_k=_whole_number(joined, "top_k", where),
        top_p=_number(joined, "top_p", where),
        min_p=_number(joined, "min_p", where),
        repetition_penalty=_number(joined, "repetition_penalty", where),
        max_new_tokens=_whole_number(joined, "max_new_tokens", where),
    )


def end_tokens(template: str) -> set[str]:
    """Known end-of-turn tokens that a chat template writes."""
    return set(_TOKEN_IN_TEMPLATE.findall(template))


def _ids(value: object, where: str) -> list[int]:
    """Token ids from null, one id, or a list of them."""
    values: list[Any] = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(item) is int for item in values):
        raise CheckpointError(f"{where}: token id {str(value)[:60]!r} is neither a whole number nor a list of them")
    return values


def _first_valid_id(value: object, vocabulary: int, where: str) -> int | None:
    """Return the first of some ids, None if there is none or it is not a token."""
    id = next(iter(_ids(value, where)), None)
    return id if id is not None and 0 <= id < vocabulary else None


def _number(values: Mapping[str, Any], name: str, where: str) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value):
        raise CheckpointError(f"{where}: {name} is {str(value)[:60]!r}, expected a number")
    return float(value)


def _whole_number(values: Mapping[str, Any], name: str, where: str) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    if type(value) is not int:
        raise CheckpointError(f"{where}: {name} is {str(value)[:60]!r}, expected a whole number")
    return value
