"""Model files: reading, resolving, converting, writing. The only home of tokenizers, jinja2, gguf and the hub."""

from __future__ import annotations

from volumetric.loaders.chat import ChatTemplate
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.model import LoadedModel, detect_model, open_model
from volumetric.loaders.native import save_native
from volumetric.loaders.tokenizer import StreamDecoder, Tokenizer

__all__ = [
    "ChatTemplate",
    "GenerationDefaults",
    "LoadedModel",
    "StreamDecoder",
    "Tokenizer",
    "detect_model",
    "open_model",
    "save_native",
]
