"""Merge of two models of one architecture into a new one that can be saved and run."""

from __future__ import annotations

import dataclasses
import logging

from volumetric.errors import ShapeError
from volumetric.evolution.splice import SpliceConfig, SplicedLayer, splice
from volumetric.loaders import LoadedModel

logger = logging.getLogger(__name__)


def merge(
    a: LoadedModel, b: LoadedModel, config: SpliceConfig | None = None
) -> tuple[LoadedModel, tuple[SplicedLayer, ...]]:
    """Splice every layer of two models; tokenizer, templates and numeric types are those of `a`.

    Parameters
    ----------
    a, b : open models of one architecture and of equal sizes; their numeric types may differ
    config : as for `splice`; the default blends both halves

    Returns
    -------
    The merged model, which `volumetric.loaders.convert.save_model` writes in any format, and what became of each layer

    Raises
    ------
    ShapeError
        The networks differ, so that the result would be parts of one model inside another; or their classes do.
    """
    if a.network != b.network:
        kinds = [len(model.network.layers) for model in (a, b)]
        raise ShapeError(
            f"{a.name} and {b.name} are not of one architecture ({kinds[0]} and {kinds[1]} layers)",
            hint="merge models of equal type and sizes, such as two fine-tunings of one model",
        )
    if a.classes != b.classes:
        raise ShapeError(
            f"{a.name} and {b.name} name their classes differently: {_shown(a.classes)} and {_shown(b.classes)}",
            hint="outputs at one place must mean the same",
        )
    if a.inputs != b.inputs:
        logger.warning(
            "%s and %s standardise their inputs by different statistics: the merged model has those of %s",
            *(a.name, b.name, a.name),
        )
    child = splice((a.network, a.params), (b.network, b.params), config)
    return dataclasses.replace(a, name=f"{a.name}+{b.name}", params=child.params), child.report


def _shown(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:4]) + (", …" if len(classes) > 4 else "") if classes else "no names"
