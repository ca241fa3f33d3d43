"""Adapters of a model that runs: several LoRAs beside its packed weights, scaled and switched between calls."""

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
from volumetric.network.weights import WeightStore
from volumetric.run.adapted import AdaptedExecutable
from volumetric.run.device import Device, Executable, RunOptions
from volumetric.run.graph.low_rank import Overlay, overlays_of, with_adapters
from volumetric.run.graph.network import NATIVE, open_graph
from volumetric.run.graph.segments import row_wise
from volumetric.run.plan import Plan
from volumetric.run.sharing import Sharing

if TYPE_CHECKING:
    from volumetric.loaders import LoadedModel
    from volumetric.loaders.peft import Adapter
    from volumetric.loaders.peft_merge import Lora

_FLOAT32 = Scheme.parse("float32")


def adapted(loaded: LoadedModel, plan: Plan, lora: Lora) -> tuple[LoadedModel, Adapters]:
    """Return a model with what its adapters replace, and its adapters.

    Raises
    ------
    UnsupportedError
        The network has layers that do not run on packed weights; or as `read_adapters`.
    """
    if not lora and not isinstance(lora, str):
        return loaded, Adapters({}, {})
    if not row_wise(plan, NATIVE):
        raise UnsupportedError(
            f"{loaded.name} has layers beside which no adapter can run", hint="merge it with PEFT, and open the result"
        )

    from volumetric.loaders.peft_merge import read_adapters  # few models have any

    loaded, adapters, scales = read_adapters(lora, loaded)
    return loaded, Adapters(adapters, scales)


class Adapters(Mapping[str, float]):
    """Name → scale of a model's adapters.

    Parameters
    ----------
    adapters, scales : by name

    Attributes
    ----------
    weights : what each adapter of the executable weighs for the rows of this model, changed in place; until `place`
        those of this model alone
    """

    def __init__(self, adapters: Mapping[str, Adapter], scales: Mapping[str, float]) -> None:
        self._adapters, self._scales = dict(adapters), dict(scales)
        self._first = 0
        self.weights = np.array([*scales.values()], np.float32)

    def __getitem__(self, name: str) -> float:
        return self._scales[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scales)

    def __len__(self) -> int:
        return len(self._scales)

    @property
    def factors(self) -> list[Mapping[str, tuple[F32Array, F32Array]]]:
        """Of each adapter: key of a weight → A ``[rank, in]`` and B ``[out, rank]``."""
        return [adapter.factors for adapter in self._adapters.values()]

    def place(self, first: int, total: int) -> int:
        """Let `weights` be those of an executable with `total` adapters, of which these begin at `first`; the next."""
        self._first, own = first, self.weights
        self.weights = np.zeros(total, np.float32)
        self.weights[first : first + len(own)] = own
        return first + len(own)

    @property
    def replaces(self) -> bool:
        """Whether an adapter has modules of its own in the place of the model's."""
        return any(adapter.replaced for adapter in self._adapters.values())

    def set_scale(self, name: str, scale: float) -> None:
        """Change a scale; errors as for `Model.set_adapter`."""
        if name not in self._scales:
            raise SpecError(f"no adapter {name!r}", hint=f"loaded: {', '.join(self) or 'none'}")
        if type(scale) not in (int, float) or not math.isfinite(scale):
            raise SpecError(f"the scale of adapter {name} is {scale!r}", hint="1 is as it was trained, 0 is off")
        if self._adapters[name].replaced and scale != 1:
            raise UnsupportedError(f"{name} replaces whole modules, which cannot be scaled or switched off")
        self._scales[name] = float(scale)
        self.weights[self._first + [*self._scales].index(name)] = scale

    def merged(self, params: Params) -> Params:
        """Return weights with the adapters in force added, each in the scheme that it has."""
        from volumetric.loaders.peft_merge import add_adapters

        return add_adapters(params, self._adapters, self._scales)


def overlaid(plan: Plan, params: Params, adapters: Iterable[Adapters]) -> tuple[Plan, Params]:
    """Return a plan whose products add adapters, one behind the other, and its parameters with their factors.

    Raises
    ------
    UnsupportedError
        A weight has no form with an overlay, such as a head that is the embedding too.
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
    """Make a factor when it is read: what fills it up with zeros is then in memory on the device alone."""
    return Packed.from_array(overlay.factors(factors)[at])


def compiled(
    device: Device, plan: Plan, params: Params, options: RunOptions, like: Executable | None = None
) -> Executable:
    """Compile a plan, with the weights of another executable where it has them and devices can share them."""
    if isinstance(like, AdaptedExecutable):
        like = like.shared.plain or like.shared.mixed
    return like.beside(plan, params) if isinstance(like, Sharing) else device.compile(plan, params, options)
