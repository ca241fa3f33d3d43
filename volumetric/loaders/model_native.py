"""A model from a directory that this package wrote, or from a JSON file that describes a network."""

from __future__ import annotations

import logging

from volumetric.dtypes import Scheme
from volumetric.loaders.generation_config import read_generation
from volumetric.loaders.hf_config import MAX_SIZE
from volumetric.loaders.json_file import read_object
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.model_location import ModelLocation
from volumetric.loaders.model_texts import largest_table, read_texts
from volumetric.loaders.native_checkpoint import read_clocked, read_native, read_native_head
from volumetric.loaders.sentence_modules import read_sentences
from volumetric.loaders.target_schemes import convert, target_schemes
from volumetric.network import Network, Params, initialise
from volumetric.network.weight_store import WeightStore

logger: logging.Logger = logging.getLogger(__name__)


def open_native(location: ModelLocation, dtype: Scheme | None) -> LoadedModel:
    """Open a directory that this package wrote; see `model.open_model`."""
    network, params, facts = read_native(location.directory, dtype)
    path = location.directory / "config.json"
    config = read_object(path) if path.is_file() else {}
    texts = read_texts(location.directory, config, largest_table(network))
    return LoadedModel(
        name=location.name,
        network=network,
        params=params,
        tokenizer=texts.tokenizer,
        chat_template=texts.template,
        generation=texts.generation,
        context_length=facts.context_length,
        path=location.directory,
        config=config,
        inputs=facts.inputs,
        classes=facts.classes,
        features=facts.features,
        sentences=read_sentences(location.directory),
        head=read_native_head(location.directory, facts),
        hidden=facts.hidden,
        damage=facts.damage,
        clocked=read_clocked(location.directory, network),
    )


def open_json(location: ModelLocation, dtype: Scheme | None) -> LoadedModel:
    """Open one JSON file; random weights are drawn if it has none. See `model.open_model`."""
    from volumetric.loaders.network_file import read_network_file  # imports the reader of a rare format

    network, params = read_network_file(location.weights)
    if params is None:
        logger.warning("%s has no weights: random weights are drawn with seed 0", location.weights)
        params = initialise(network)
    return model_of_network(location, network, params, dtype)


def model_of_network(
    location: ModelLocation, network: Network, params: Params, dtype: Scheme | None, classes: tuple[str, ...] = ()
) -> LoadedModel:
    """Return the model of a file that has a network and weights but no texts, its weights converted to `dtype`."""
    targets = target_schemes(network, dtype)
    if targets:
        converted = {key: convert(store.packed(), targets.get(key)) for key, store in params.items()}
        params = Params({key: WeightStore.from_packed(packed) for key, packed in converted.items()})
    return LoadedModel(
        name=location.name,
        network=network,
        params=params,
        tokenizer=None,
        chat_template=None,
        generation=read_generation([], [], MAX_SIZE, str(location.weights)),
        context_length=0,
        path=location.weights,
        classes=classes,
    )
