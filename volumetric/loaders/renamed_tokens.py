"""Tokens of a ``tokenizer.json`` under other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def renamed_json(content: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of a ``tokenizer.json`` with other texts for some tokens; merges to them are removed."""
    model = content["model"]
    for token in content["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(text, text): id for text, id in vocabulary.items()}
    else:
        model["vocab"] = [[names.get(text, text), score] for text, score in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        pairs = (merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"])
        model["merges"] = [pair for pair in pairs if not names.keys() & {*pair, "".join(pair)}]
    return content
