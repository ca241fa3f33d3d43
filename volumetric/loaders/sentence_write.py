"""modules.json and its kin for a model whose own file says how texts become embeddings, as a GGUF file does."""

from __future__ import annotations

from typing import Any, Final

from volumetric.loaders.sentence import MODULES, PROMPTS, Sentences

_KIND: Final = "sentence_transformers.models."


def new_sentence_files(sentences: Sentences, width: int, max_length: int) -> dict[str, Any]:
    """Return name → JSON value of files from which `read_sentences` and sentence-transformers make the same.

    Parameters
    ----------
    width : numbers of a hidden state
    max_length : tokens of a text that count, unless `sentences` says so
    """
    modules = {"": "Transformer", "1_Pooling": "Pooling"}
    if sentences.normalise:
        modules["2_Normalize"] = "Normalize"
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": _KIND + kind} for i, (path, kind) in enumerate(modules.items())
    ]
    names = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    pooling: dict[str, Any] = {"word_embedding_dimension": width, "include_prompt": sentences.include_prompt}
    pooling |= {f"pooling_mode_{name}": mode in sentences.pooling for mode, name in names.items()}
    return {
        MODULES: listed,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {
            "max_seq_length": sentences.max_length or max_length,
            "do_lower_case": sentences.lower_case,
        },
        PROMPTS: {"prompts": dict(sentences.prompts), "default_prompt_name": sentences.default_prompt},
    }
