"""Weight stores on a checkpoint: tensors are read one at a time, when a device or a conversion needs them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from volumetric.base._typing import Shape
from volumetric.dtypes import DType, Packed, Scheme
from volumetric.loaders.name_rules import ModelBlueprint, NameRule, fit_rules, read_parameter, read_scheme
from volumetric.loaders.target_schemes import convert, target_schemes
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Params, initialise
from volumetric.network.weight_store import WeightStore

logger: logging.Logger = logging.getLogger(__name__)


def mount(
    blueprint: ModelBlueprint, source: TensorSource, dtype: str | DType | Scheme | None = None, *, strict: bool = True
) -> Params:
    """Return the parameters of a network as lazy stores on a checkpoint.

    Parameters
    ----------
    dtype : scheme to which tensors are converted when read; None keeps the stored scheme
    strict : see `names.fit`; if false, missing parameters are initialised as in a new network

    Raises
    ------
    CheckpointError
        The tensors do not fit the network.
    """
    rules = fit_rules(blueprint, source, strict=strict)
    targets = target_schemes(blueprint.network, dtype)
    specs = blueprint.network.param_specs()
    absent = [key for key in specs if key not in rules]
    fresh: Mapping[str, WeightStore] = initialise(blueprint.network) if absent else {}
    return Params(
        {
            key: _store(rules[key], source, spec.shape, targets[key]) if key in rules else fresh[key]
            for key, spec in specs.items()
        }
    )


def _store(rule: NameRule, source: TensorSource, shape: Shape, target: Scheme | None) -> WeightStore:
    stored = read_scheme(rule, source)

    def produce() -> Packed:
        return convert(read_parameter(rule, source, shape), target)

    def produce_rows(start: int, stop: int) -> Packed:
        return source.packed_rows(rule.source, start, stop)

    return WeightStore(
        shape,
        target or stored,
        produce,
        rows=produce_rows if rule.verbatim and target in (None, stored) else None,
        release=lambda: source.release(rule.source),
    )
