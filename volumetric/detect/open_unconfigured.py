"""Open weights without a configuration by names and shapes, or report how they were recognised."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from volumetric.base.errors import CheckpointError
from volumetric.detect.assumptions import Assumptions, read_assumptions
from volumetric.detect.detection import Detection, detect
from volumetric.detect.spellings import adapter_of
from volumetric.dtypes import Scheme
from volumetric.loaders import quantised
from volumetric.loaders.hf_config import Config
from volumetric.loaders.loaded_model import UNCONFIGURED, LoadedModel
from volumetric.loaders.model_hf import open_configured
from volumetric.loaders.model_location import ModelLocation, resolve
from volumetric.loaders.model_texts import largest_table, read_texts
from volumetric.loaders.name_rules import SHOWN
from volumetric.loaders.shards import open_safetensors
from volumetric.loaders.tensor_source import TensorSource

logger: logging.Logger = logging.getLogger(__name__)


def open_bare(location: ModelLocation) -> TensorSource:
    """Return tensors without a configuration; of quantised formats, names identify only stacks of MXFP4."""
    files = open_safetensors(location.weights)
    if not any(name.endswith("_blocks") and f"{name[:-7]}_scales" in files.entries for name in files.entries):
        return files
    method = {"quantization_config": {"quant_method": "mxfp4"}}
    return quantised.unpack_weights(Config(method, str(location.weights), len(files.entries)), files)[1]


def open_guessed(location: ModelLocation, dtype: Scheme | None, guess: bool | Mapping[str, Any] | None) -> LoadedModel:
    """Open safetensors without a configuration; see `loaders.open_model`."""
    assumptions = read_assumptions(guess)
    source, where = open_bare(location), str(location.weights)
    adapter = adapter_of(source.entries)
    if adapter is not None:
        raise CheckpointError(f"{where} is {adapter[0]}, not a model", hint=adapter[1])
    if assumptions is None:
        raise CheckpointError(
            f"{where} has weights, but no config.json",
            hint=(
                "add config.json, which has the family and the sizes, or use guess=True (--guess) to guess "
                "them from names and shapes; volumetric.detect.load_state(network, path) fills a network that you have"
            ),
        )
    detection = detect(source, assumptions, where)
    if detection.assumed and not detection.missing:
        conventions = ", ".join(f"{name} {value}" for name, value in detection.assumed.items())
        logger.warning(
            "%s: recognised as %s; conventional values, which guess= (--assume) changes: %s",
            where,
            detection.architecture,
            conventions,
        )
    if detection.family and not detection.missing and detection.source is not None:
        config = Config(detection.values, where, len(source.entries))
        return open_configured(location, config, detection.source, dtype, strict=True)
    network, params = detection.mount(source, dtype, where)
    if detection.left_out:
        names, more = list(detection.left_out)[:SHOWN], len(detection.left_out) - SHOWN
        rest = f" and {more} more" if more > 0 else ""
        logger.warning("%s: recognised as %s; left out: %s%s", where, detection.architecture, ", ".join(names), rest)
    texts = read_texts(location.directory, {}, largest_table(network))
    return LoadedModel(
        name=location.name,
        network=network,
        params=params,
        tokenizer=texts.tokenizer,
        chat_template=texts.template,
        generation=texts.generation,
        context_length=0,
        path=location.weights,
    )


def detect_model(
    source: str | os.PathLike[str], guess: bool | Mapping[str, Any] | None = None, *, offline: bool = False
) -> Detection | None:
    """Return how weights without a configuration were recognised; None if there is a configuration.

    Parameters
    ----------
    source, offline : as for `loaders.open_model`
    guess : values by name that names and shapes do not determine

    Raises
    ------
    CheckpointError
        Not found, or damaged.
    SpecError
        `guess` has a value that is never used.
    """
    location = resolve(os.fspath(source), offline=offline)
    if location.kind != "hf" or (location.directory / "config.json").is_file():
        return None
    return detect(open_bare(location), read_assumptions(guess) or Assumptions(), str(location.weights))


UNCONFIGURED["safetensors"] = open_guessed
