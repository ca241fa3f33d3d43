"""Configuration of the evolution of grids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from volumetric.base.errors import SpecError
from volumetric.evolution.evolution_config import ReproductionConfig, RunConfig, SpeciesConfig, check_chances
from volumetric.formula.unary_functions import ACTIVATIONS

KINDS: Final = (
    "dense", "multi_head_attention", "swiglu", "mlp", "rms_norm", "layer_norm", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "rnn", "lstm", "gru", "embedding", "kmeans", "softmax",
    "sparsemax", "entmax", "parallel", "sequential",
)  # fmt: skip
"""Layer kinds that mutation can create, if they fit the shapes."""
CELLS: Final = ("causal_conv1d", "slstm", "mlstm", "agalite", "axon", "axon_linear", "xl_attention")
SCAFFOLDS: Final = ("pass_through", "pre_up", "pre_up_gated", "post_up", "post_up_gated", "adapter", "column")
PROGRAM_CHANCES: Final = (
    "add_region", "drop_region", "change_region", "add_edge", "drop_edge", "change_edge", "change_clock",
    "change_carrier", "change_slots", "change_mask", "change_learning",
)  # fmt: skip
"""Probabilities of changes of programs."""
NAMED: Final = (*CELLS, *SCAFFOLDS)
"""Layer kinds that mutation creates only if they are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridMutationConfig:
    """Probabilities of mutations.

    Those of weights, activation, kind and toggling are per layer, those of programs per program, the others per child.

    Attributes
    ----------
    weight_rate, weight_replace : probability that a weight of a perturbed layer changes, and that it is redrawn
    layer_rate : probability that the weights of a layer are perturbed
    weight_power : standard deviation of a change, in units of the standard deviation of the tensor's fresh weights
    activation, kind, toggle : change the activation; change the kind of layer, with fresh weights; enable or disable
    add_layer : insert a layer that keeps the shape into a free slot of the grid; it begins close to the identity
    split_layer : replace a layer by the mean of two copies, which then diverge
    add_region, drop_region, change_region : for a program: copy a region to a free place, initially unread; remove a
        region with its edges; change carrier, family, rule or size. These and the following are per program
    add_edge, drop_edge, change_edge : add an edge, without effect at first if possible; remove an edge; change rule,
        way of writing, weight, lag, mask, or ends
    change_clock : add, loosen, tighten or remove a clock of a region or a condition of an edge
    change_carrier, change_slots : add a filter with gain 1, or a twin of a region with another carrier or with slots,
        initially unread; change or remove slots
    change_mask, change_learning : add a mask that hides nothing yet, or a loss of weight 0 to a region; change pairs
        or weights; remove them. The default of these four is 0
    add_link, drop_link : add or remove a link to a later layer
    activations, kinds : choices of mutation; cells and scaffolds of stacks, such as ``"slstm"`` or ``"post_up"``, must
        be named
    sequences : whether layers that read other rows, as attention and recurrent layers, may be used for rows of
        features. Use False for independent rows, as the samples of a data set. None: set by the problem, by default
        true
    """

    layer_rate: float = 0.8
    weight_rate: float = 0.8
    weight_replace: float = 0.05
    weight_power: float = 0.2
    activation: float = 0.1
    kind: float = 0.05
    toggle: float = 0.02
    add_layer: float = 0.05
    split_layer: float = 0.02
    add_link: float = 0.05
    drop_link: float = 0.02
    add_region: float = 0.05
    drop_region: float = 0.02
    change_region: float = 0.05
    add_edge: float = 0.1
    drop_edge: float = 0.05
    change_edge: float = 0.2
    change_clock: float = 0.1
    change_carrier: float = 0.0
    change_slots: float = 0.0
    change_mask: float = 0.0
    change_learning: float = 0.0
    activations: tuple[str, ...] = ("relu", "silu", "gelu", "tanh", "sigmoid", "linear")
    kinds: tuple[str, ...] = KINDS
    sequences: bool | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        chances = ("layer_rate", "weight_rate", "weight_replace", "activation", "kind", "toggle")
        check_chances("mutation", self, *chances, "add_layer", "split_layer", "add_link", "drop_link", *PROGRAM_CHANCES)
        if not self.weight_power >= 0:
            raise SpecError(f"mutation.weight_power must be at least 0, got {self.weight_power}")
        for name, known in (("activations", ACTIVATIONS), ("kinds", (*KINDS, *NAMED))):
            unknown = [value for value in getattr(self, name) if value not in known]
            if unknown:
                raise SpecError(f"mutation.{name}: unknown {unknown[0]!r}", hint=f"known: {', '.join(known)}")


def _grid_species() -> SpeciesConfig:
    # The mean difference of weights is at most 1 here, and structures are small, so weights have a larger coefficient.
    return SpeciesConfig(threshold=2.0, threshold_step=0.1, weight=3.0, target=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridConfig(RunConfig):
    """A run of grids.

    Attributes
    ----------
    algorithm : "neat": species, fitness sharing and crossover aligned by markings. "elites": the best quarter of the
        population survives, all others are spliced and mutated children of two of them
    mutation : section in addition to those of `RunConfig`
    """

    algorithm: Literal["neat", "elites"] = "neat"
    species: SpeciesConfig = field(default_factory=_grid_species)
    reproduction: ReproductionConfig = field(default_factory=ReproductionConfig)
    mutation: GridMutationConfig = field(default_factory=GridMutationConfig)
