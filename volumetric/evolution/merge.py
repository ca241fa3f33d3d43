"""Merge of two models of one architecture into a new one that can be saved and run."""

from __future__ import annotations

import dataclasses

from volumetric.errors import ShapeError
from volumetric.evolution.splice import SpliceConfig, SplicedLayer, splice
from volumetric.loaders import LoadedModel


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
        The networks differ, so that the result would be parts of one model inside another.
    """
    if a.network != b.network:
        kinds = [len(model.network.layers) for model in (a, b)]
        raise ShapeError(
            f"{a.name} and {b.name} are not of one architecture ({kinds[0]} and {kinds[1]} layers)",
            hint="merge models of equal type and sizes, such as two fine-tunings of one model",
        )
    child = splice((a.network, a.params), (b.network, b.params), config)
    return dataclasses.replace(a, name=f"{a.name}+{b.name}", params=child.params), child.report
