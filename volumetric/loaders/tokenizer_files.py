"""Tokenizer of a Hugging Face directory: tokenizer.json, with the facts of tokenizer_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import CheckpointError
from volumetric.loaders.hf_config import MAX_SIZE
from volumetric.loaders.json_file import read_bytes, read_object
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.loaders.wordpiece_files import wordpiece

if TYPE_CHECKING:
    import tokenizers

MAX_TOKENIZER_BYTES: Final = 512_000_000
SPECIAL_ROLES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_tokenizer_files(directory: Path) -> tuple[Tokenizer | None, Mapping[str, Any]]:
    """Return the tokenizer of a directory, None if it has none, and the content of its tokenizer_config.json.

    BERT's vocab.txt is supported, too. For a directory with only the files of other older tokenizers (vocab.json,
    tokenizer.model), the tokenizer raises an error when it is used.

    Raises
    ------
    CheckpointError
        A file is damaged.
    """
    path = directory / "tokenizer.json"
    config = read_object(directory / "tokenizer_config.json") if (directory / "tokenizer_config.json").is_file() else {}
    others = [name for name in ("tokenizer.model", "vocab.json", "vocab.txt") if (directory / name).is_file()]
    if not path.is_file() and not others:
        return None, config

    def build() -> tokenizers.Tokenizer:
        if not path.is_file() and others == ["vocab.txt"]:
            return wordpiece(directory, config, _special_tokens(directory, config))
        if not path.is_file():
            raise CheckpointError(
                f"{directory} has {' and '.join(others)}, but no tokenizer.json",
                hint="save the tokenizer once with transformers, which writes tokenizer.json",
            )
        from tokenizers import Tokenizer as Backend

        return Backend.from_str(read_bytes(path, MAX_TOKENIZER_BYTES).decode())

    add_bos, longest = config.get("add_bos_token"), config.get("model_max_length")
    tokenizer = Tokenizer(
        build,
        special_tokens=_special_tokens(directory, config),
        special_ids=_special_ids(config),
        add_bos=add_bos if isinstance(add_bos, bool) else None,
        max_length=int(longest) if isinstance(longest, (int, float)) and 0 < longest < MAX_SIZE else None,
        where=str(path),
    )
    return tokenizer, config


def _special_tokens(directory: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Role → text; the value is a string or an object with the text in ``content``."""
    older = directory / "special_tokens_map.json"
    values = {**(read_object(older) if older.is_file() else {}), **config}
    tokens: dict[str, str] = {}
    for role in SPECIAL_ROLES:
        value = values.get(role)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            tokens[role] = text
    return tokens


def _special_ids(config: Mapping[str, Any]) -> dict[str, int]:
    """Text → id from ``added_tokens_decoder``, which avoids reading the large tokenizer.json for an end token."""
    added = config.get("added_tokens_decoder")
    if not isinstance(added, dict):
        return {}
    return {
        token["content"]: int(id)
        for id, token in added.items()
        if id.isascii() and id.isdigit() and isinstance(token, dict) and isinstance(token.get("content"), str)
    }
