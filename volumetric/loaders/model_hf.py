"""A model from safetensors with a configuration."""

from __future__ import annotations

import logging

from volumetric.dtypes import Scheme
from volumetric.loaders import quantised
from volumetric.loaders.encoder_layers import trunk_of
from volumetric.loaders.hf_config import Config
from volumetric.loaders.json_file import read_object
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.model_location import ModelLocation
from volumetric.loaders.model_texts import read_texts
from volumetric.loaders.mount import mount
from volumetric.loaders.multimodal import text_part
from volumetric.loaders.numbered_rows import join_numbered_rows
from volumetric.loaders.sentence_modules import lacks_head, read_head, read_labels, read_sentences
from volumetric.loaders.shards import open_safetensors
from volumetric.loaders.tensor_source import TensorSource
from volumetric.loaders.tied_heads import build_for

logger: logging.Logger = logging.getLogger(__name__)


def open_hf(location: ModelLocation, dtype: Scheme | None, *, strict: bool) -> LoadedModel:
    """Open safetensors with a configuration; see `model.open_model`."""
    path = location.directory / "config.json"
    files = open_safetensors(location.weights)
    config, source = quantised.unpack_weights(Config(read_object(path), str(path), len(files.entries)), files)
    return open_configured(location, config, source, dtype, strict=strict)


def open_configured(
    location: ModelLocation, config: Config, source: TensorSource, dtype: Scheme | None, *, strict: bool
) -> LoadedModel:
    """Open tensors with a configuration, either from the files or a recognised one."""
    directory = location.directory
    config, source = text_part(config, join_numbered_rows(source))
    config, blueprint = build_for(config, source)
    sentences = read_sentences(directory) if blueprint.pooled is None else None
    if sentences is not None or lacks_head(blueprint, config, source):
        blueprint = trunk_of(blueprint)
    params = mount(blueprint, source, dtype, strict=strict)
    texts = read_texts(directory, config.values, config.integer("vocab_size"))
    return LoadedModel(
        name=location.name,
        network=blueprint.network,
        params=params,
        tokenizer=texts.tokenizer,
        chat_template=texts.template,
        generation=texts.generation,
        context_length=blueprint.context_length,
        path=location.weights,
        config=config.values,
        classes=read_labels(config) if blueprint.pooled is not None else (),
        sentences=sentences,
        head=read_head(blueprint, source),
        hidden=blueprint.hidden,
    )
