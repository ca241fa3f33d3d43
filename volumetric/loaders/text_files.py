"""Text files of a written model next to the weights: configuration, tokenizer, chat template, defaults."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from volumetric.loaders.json_file import read_bytes
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.sentence_modules import new_sentence_files, sentence_files
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.loaders.tokenizer_files import MAX_TOKENIZER_BYTES

COPIED: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
    "vocab.txt",
)


def text_files(model: LoadedModel) -> dict[str, bytes]:
    """Return name → content of the text files of a model: copies if it has them, else created.

    Raises
    ------
    CheckpointError
        The tokenizer of a GGUF file cannot be rebuilt.
    """
    files: dict[str, bytes] = {}
    if model.config:
        files["config.json"] = to_json(model.config)
    if model.path.suffix != ".gguf":
        return files | _copies(model.directory)
    if model.tokenizer is not None:
        files["tokenizer.json"] = model.tokenizer.to_json().encode()
        files["tokenizer_config.json"] = to_json(_tokenizer_config(model.tokenizer, model))
    limit = (model.tokenizer and model.tokenizer.max_length) or model.context_length
    if model.sentences is not None:
        width = model.network.shapes[min(model.network.shapes)][-1]  # rows of the embedding
        written = new_sentence_files(model.sentences, width, limit)
        files |= {name: to_json(values) for name, values in written.items()}
    defaults = {key: value for key, value in _generation(model).items() if value is not None}
    return files | {"generation_config.json": to_json(defaults)}


def _copies(directory: Path) -> dict[str, bytes]:
    paths = [directory / name for name in COPIED] + sorted(directory.glob("additional_chat_templates/*.jinja"))
    paths += sentence_files(directory)
    return {
        path.relative_to(directory).as_posix(): read_bytes(path, MAX_TOKENIZER_BYTES)
        for path in paths
        if path.is_file()
    }


def to_json(values: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """JSON text of a configuration file, in the given order."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _tokenizer_config(tokenizer: Tokenizer, model: LoadedModel) -> dict[str, Any]:
    """Content of tokenizer_config.json for transformers; its generic class reads tokenizer.json unchanged."""
    values: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer.special_tokens}
    values |= {"clean_up_tokenization_spaces": False, "model_max_length": tokenizer.max_length or model.context_length}
    if model.chat_template is not None:
        values["chat_template"] = model.chat_template.source
    return values


def _generation(model: LoadedModel) -> dict[str, Any]:
    values = dataclasses.asdict(model.generation)
    eos = list(values.pop("eos_ids"))
    names = {"bos_id": "bos_token_id", "pad_id": "pad_token_id"}
    renamed = {names.get(key, key): value for key, value in values.items()}
    return {"eos_token_id": eos[0] if len(eos) == 1 else eos or None, **renamed}
