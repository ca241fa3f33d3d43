"""Text settings of a model: the files next to the weights."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from volumetric.base.errors import CheckpointError
from volumetric.layers import Embedding
from volumetric.loaders.chat_template import ChatTemplate, read_chat_template
from volumetric.loaders.generation_config import GenerationDefaults, end_tokens, read_generation
from volumetric.loaders.hf_config import MAX_SIZE
from volumetric.loaders.json_file import read_object
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.network import Network

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTexts:
    """Tokenizer, chat template and generation defaults from the files next to the weights."""

    tokenizer: Tokenizer | None
    template: ChatTemplate | None
    generation: GenerationDefaults


def read_texts(directory: Path, config: Mapping[str, Any], vocabulary: int) -> ModelTexts:
    """Read tokenizer, template and generation defaults of a directory for a model with `vocabulary` ids."""
    from volumetric.loaders.tokenizer_files import read_tokenizer_files  # GGUF files contain their own

    tokenizer, tokenizer_config = read_tokenizer_files(directory)
    special = {} if tokenizer is None else tokenizer.special_tokens
    template = read_chat_template(directory, tokenizer_config, special)
    path = directory / "generation_config.json"
    configs = [config, read_object(path)] if path.is_file() else [config]
    ends = known_ids(tokenizer, [special.get("eos_token"), *template_ends(template)])
    generation = read_generation(configs, ends, vocabulary, str(directory))
    return ModelTexts(tokenizer=tokenizer, template=template, generation=generation)


def largest_table(network: Network) -> int:
    """Return the vocabulary size of a network without a configuration; no limit if it reads no ids."""
    sizes = [spec.num_embeddings for spec in network.layers.values() if isinstance(spec, Embedding)]
    return max(sizes, default=MAX_SIZE)


def template_ends(template: ChatTemplate | None) -> list[str]:
    """Return the tokens with which the chat template ends a turn."""
    return [] if template is None else sorted(end_tokens(template.source))


def known_ids(tokenizer: Tokenizer | None, tokens: Iterable[str | None]) -> list[int | None]:
    """Return the ids of tokens that exist; empty if the tokenizer cannot be built, which raises when it is used."""
    if tokenizer is None:
        return []
    try:
        return [tokenizer.token_id(token) for token in tokens]
    except CheckpointError as error:
        logger.warning("end-of-text ids of the tokenizer are unknown: %s", error)
        return []
