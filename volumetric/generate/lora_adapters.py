"""Adapters of a running model: several LoRAs in addition to its packed weights, scaled and switched between calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.dtypes import Packed, Scheme
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore
from volumetric.run.adapted_executable import AdaptedExecutable
from volumetric.run.device import Device, Executable, RunOptions
from volumetric.run.graph.low_rank import Overlay, overlays_of, with_adapters
from volumetric.run.graph.network_graph import NATIVE, open_graph
from volumetric.run.graph.partition import row_wise
from volumetric.run.plan import Plan
from volumetric.run.shared_weights import SharesWeights

if TYPE_CHECKING:
    from volumetric.loaders import LoadedModel
    from volumetric.loaders.peft import LoraAdapter
    from volumetric.loaders.peft_merge import Lora

_FLOAT32 = Scheme.parse("float32")


def apply_adapters(loaded: LoadedModel, plan: Plan, lora: Lora) -> tuple[LoadedModel, Adapters]:
    """Return a model with the modules that its adapters replace, and its adapters.

    Raises
    ------
    UnsupportedError
        The network has layers that do not run on packed weights; see also `read_adapters`.
    """
    if not lora and not isinstance(lora, str):
        return loaded, Adapters({}, {})
    if not row_wise(plan, NATIVE):
        raise UnsupportedError(
            f"{loaded.name} has layers that do not support adapters at run time",
            hint="merge it with PEFT, and open the result",
        )

    from volumetric.loaders.peft_merge import read_adapters  # few models have adapters

    loaded, adapters, scales = read_adapters(lora, loaded)
    return loaded, Adapters(adapters, scales)


class Adapters(Mapping[str, float]):
    """Name → scale of a model's adapters.

    Parameters
    ----------
    adapters, scales : adapters and scales by name

    Attributes
    ----------
    weights : scale of each adapter of the executable for the rows of this model, changed in place; before `place` only
        the adapters of this model
    """

    def __init__(self, adapters: Mapping[str, LoraAdapter], scales: Mapping[str, float]) -> None:
        self._adapters, self._scales = dict(adapters), dict(scales)
        self._first = 0
        self.weights: F32Array = np.array([*scales.values()], np.float32)

    def __getitem__(self, name: str) -> float:
        return self._scales[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scales)

    def __len__(self) -> int:
        return len(self._scales)

    @property
    def factors(self) -> list[Mapping[str, tuple[F32Array, F32Array]]]:
        """For each adapter: key of a weight → A ``[rank, in]`` and B ``[out, rank]``."""
        return [adapter.factors for adapter in self._adapters.values()]

    def place(self, first: int, total: int) -> int:
        """Extend `weights` to an executable's `total` adapters, these from index `first`; return the next index."""
        self._first, own = first, self.weights
        self.weights = np.zeros(total, np.float32)
        self.weights[first : first + len(own)] = own
        return first + len(own)

    @property
    def replaces(self) -> bool:
        """Whether an adapter replaces whole modules of the model."""
        return any(adapter.replaced for adapter in self._adapters.values())

    def set_scale(self, name: str, scale: float) -> None:
        """Change a scale; raises the errors of `Model.set_adapter`."""
        if name not in self._scales:
            raise SpecError(f"unknown adapter {name!r}", hint=f"loaded: {', '.join(self) or 'none'}")
        if type(scale) not in (int, float) or not math.isfinite(scale):
            raise SpecError(
                f"the scale of adapter {name} must be a finite number, got {scale!r}",
                hint="1 is the trained scale, 0 is off",
            )
        if self._adapters[name].replaced and scale != 1:
            raise UnsupportedError(f"{name} replaces whole modules, which cannot be scaled or switched off")
        self._scales[name] = float(scale)
        self.weights[self._first + [*self._scales].index(name)] = scale

    def merged_params(self, params: Params) -> Params:
        """Return weights with the active adapters added, each in its stored scheme."""
        from volumetric.loaders.peft_merge import add_adapters

        return add_adapters(params, self._adapters, self._scales)


def overlay_adapters(plan: Plan, params: Params, adapters: Iterable[Adapters]) -> tuple[Plan, Params]:
    """Return a plan whose matrix products add the adapters in order, and its parameters with their factors.

    Raises
    ------
    UnsupportedError
        A weight does not support overlays, such as a head that shares the embedding.
    """
    each = [factors for some in adapters for factors in some.factors]
    keys = dict.fromkeys(key for factors in each for key in factors)
    ranks = {key: [len(factors[key][0]) if key in factors else 0 for factors in each] for key in keys}
    stores: dict[str, WeightStore] = {}
    for overlay in overlays_of(open_graph(plan), ranks):
        for number, factors in enumerate(each):
            for at, (key, shape) in enumerate(zip(overlay.factor_keys(number), overlay.factor_shapes, strict=True)):
                stores[key] = WeightStore(shape, _FLOAT32, partial(_factor, overlay, factors, at))
    return with_adapters(plan, ranks), Params({**params, **stores})


def _factor(overlay: Overlay, factors: Mapping[str, tuple[F32Array, F32Array]], at: int) -> Packed:
    """Return a factor that is built when it is read, so that its zero padding only exists on the device."""
    return Packed.from_array(overlay.factors(factors)[at])


def compile_plan(
    device: Device, plan: Plan, params: Params, options: RunOptions, like: Executable | None = None
) -> Executable:
    """Compile a plan; weights of the executable `like` are shared if the device can."""
    if isinstance(like, AdaptedExecutable):
        like = like.shared.plain or like.shared.mixed
    return (
        like.compile_sharing(plan, params) if isinstance(like, SharesWeights) else device.compile(plan, params, options)
    )
