"""Networks that were put together of layers that were recognised, and what fills them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from volumetric.dtypes import DType, Scheme
from volumetric.loaders.detect.fills import Fill, store_of
from volumetric.loaders.detect.findings import Certainty
from volumetric.loaders.quantise import target_schemes
from volumetric.loaders.source import TensorSource
from volumetric.network import Network, Params


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """A network, and what fills each of its parameters."""

    network: Network
    fills: Mapping[str, Fill]

    def mount(self, source: TensorSource, dtype: str | DType | Scheme | None, where: str) -> Params:
        """Return the parameters as lazy stores; each has a tensor, none is made up."""
        targets = target_schemes(self.network, dtype)
        return Params(
            {
                key: store_of(self.fills[key], spec.shape, source, targets[key], where)
                for key, spec in self.network.param_specs().items()
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanParts:
    """What an attempt to put a network together gave; `Detection` explains the fields."""

    architecture: str
    certainty: Certainty
    reason: str
    plan: NetworkPlan | None
    placed: tuple[str, ...]
    assumed: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def tensors(self) -> set[str]:
        """Tensors that have a place."""
        return set(self.placed)
