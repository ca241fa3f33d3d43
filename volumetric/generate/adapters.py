"""Adapters of a model that runs: several LoRAs beside its packed weights, scaled and switched between calls."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from volumetric.errors import SpecError, UnsupportedError
from volumetric.network import Params
from volumetric.runtime.device import Executable, Updatable
from volumetric.runtime.graph.low_rank import DOWN, UP, factor_shapes, groups_of
from volumetric.runtime.graph.network import NATIVE, open_graph
from volumetric.runtime.graph.segments import row_wise
from volumetric.runtime.plan import Plan
from volumetric.weights import WeightStore

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.loaders import LoadedModel
    from volumetric.loaders.peft import Adapter
    from volumetric.loaders.peft_merge import Lora


def adapted(loaded: LoadedModel, plan: Plan, lora: Lora) -> tuple[LoadedModel, Plan, Params, Adapters]:
    """Return a model with its adapters, its plan with their overlays, all of its parameters, and the adapters.

    Raises
    ------
    UnsupportedError
        The network has layers that do not run on packed weights; or as `read_adapters` and `Adapters`.
    """
    if not lora and not isinstance(lora, str):
        return loaded, plan, loaded.params, Adapters(plan, {}, {})
    if not row_wise(plan, NATIVE):
        raise UnsupportedError(
            f"{loaded.name} has layers beside which no adapter can run", hint="merge it with PEFT, and open the result"
        )

    from volumetric.loaders.peft_merge import read_adapters  # few models have any

    loaded, adapters, scales = read_adapters(lora, loaded)
    made = Adapters(plan, adapters, scales)
    return loaded, made.overlaid(plan), Params({**loaded.params, **made.params()}), made


class Adapts:
    """What a model does with its adapters."""

    adapters: Adapters
    """Name → scale."""
    loaded: LoadedModel
    executable: Executable

    def set_adapter(self, name: str, scale: float = 1.0) -> None:
        """Scale an adapter; 0 switches it off. Weights stay where they are, and nothing is compiled.

        What a session has computed before stays as it was: reset it where its text shall be seen with the new scale.

        Parameters
        ----------
        name : one of `adapters`: the name of its directory
        scale : 1 is as it was trained

        Raises
        ------
        SpecError : there is no such adapter, or the scale is not a finite number
        UnsupportedError : the adapter replaces whole modules
        """
        self.adapters.set_scale(name, scale)
        if isinstance(self.executable, Updatable):
            self.executable.update(self.adapters.params(down=False))

    def beside(self, lora: Lora) -> Model:
        """Return a model with adapters of its own, which uses this one's weights where they lie.

        On the CPU it takes the memory of its adapters and of its states alone, however large the model is; on other
        devices its weights are a copy. Either may be closed first.

        Parameters
        ----------
        lora : adapters, see `load`; those that this model has do not count

        Raises
        ------
        CheckpointError, UnsupportedError : as `load`, for the adapters
        """
        model = cast("Model", self)
        return type(model)(model.plain, model.device, model.executable.options, lora, beside=model)

    def merge(self) -> LoadedModel:
        """Return the model with the adapters in force added to its weights; `loaders.convert.save_model` writes it.

        Each weight keeps the scheme that it is stored in, so packed ones are rounded; open the model with
        ``dtype="float32"`` to merge without.
        """
        return dataclasses.replace(self.loaded, params=self.adapters.merged(self.loaded.params))


class Adapters(Mapping[str, float]):
    """Name → scale of a model's adapters, and the factors that they make together.

    Parameters
    ----------
    plan : of the model, without overlays
    adapters, scales : by name

    Raises
    ------
    UnsupportedError
        A weight has no form with an overlay, such as a head that is the embedding too.
    """

    def __init__(self, plan: Plan, adapters: Mapping[str, Adapter], scales: Mapping[str, float]) -> None:
        self._adapters, self._scales = dict(adapters), dict(scales)
        graph = open_graph(plan) if adapters else None
        self.ranks = {
            key: sum(len(a.factors[key][0]) for a in adapters.values() if key in a.factors)
            for key in dict.fromkeys(key for a in adapters.values() for key in a.factors)
        }
        self._shapes = {} if graph is None else factor_shapes(graph, self.ranks)
        self._first: dict[str, int] = {}
        for keys in [] if graph is None else groups_of(graph):
            at = 0
            for key in keys:
                self._first[key] = at
                at += self.ranks.get(key, 0)

    def __getitem__(self, name: str) -> float:
        return self._scales[name]

    def __iter__(self):
        return iter(self._scales)

    def __len__(self) -> int:
        return len(self._scales)

    def overlaid(self, plan: Plan) -> Plan:
        """Return the plan with the overlays."""
        return dataclasses.replace(plan, low_rank=self.ranks)

    def set_scale(self, name: str, scale: float) -> None:
        """Change a scale; errors as for `Model.set_adapter`."""
        if name not in self._scales:
            raise SpecError(f"no adapter {name!r}", hint=f"loaded: {', '.join(self) or 'none'}")
        if type(scale) not in (int, float) or not math.isfinite(scale):
            raise SpecError(f"the scale of adapter {name} is {scale!r}", hint="1 is as it was trained, 0 is off")
        if self._adapters[name].replaced and scale != 1:
            raise UnsupportedError(f"{name} replaces whole modules, which cannot be scaled or switched off")
        self._scales[name] = float(scale)

    def params(self, *, down: bool = True) -> Params:
        """Return the factors of all adapters together, with their scales; without `down` those that scales change."""
        stores: dict[str, WeightStore] = {}
        for key, shape in self._shapes.items():
            weight = key.removesuffix(DOWN).removesuffix(UP)
            used = [(n, a.factors[weight]) for n, a in self._adapters.items() if weight in a.factors]
            if key.endswith(UP):
                values, at = np.zeros(shape, np.float32), self._first[weight]
                for name, (a, b) in used:
                    values[:, at : at + len(a)] = np.float32(self._scales[name]) * b
                    at += len(a)
                stores[key] = WeightStore.from_array(values)
            elif down:
                stores[key] = WeightStore.from_array(np.concatenate([a for _, (a, _) in used]))
        return Params(stores)

    def merged(self, params: Params) -> Params:
        """Return weights with the adapters in force added, each in the scheme that it has."""
        from volumetric.loaders.peft_merge import add_adapters

        return add_adapters(params, self._adapters, self._scales)
