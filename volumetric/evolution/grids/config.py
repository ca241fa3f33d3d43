"""What can be set about the evolution of grids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from volumetric.base.errors import SpecError
from volumetric.evolution.config import ReproductionConfig, RunConfig, SpeciesConfig, check_chances
from volumetric.formula.functions import ACTIVATIONS

KINDS: Final = (
    "dense", "multi_head_attention", "swiglu", "mlp", "rms_norm", "layer_norm", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "rnn", "lstm", "gru", "embedding", "kmeans", "softmax",
    "sparsemax", "entmax", "parallel", "sequential",
)  # fmt: skip
"""Kinds that mutation can make a layer of, wherever one of them fits the shapes."""
CELLS: Final = ("causal_conv1d", "slstm", "mlstm", "agalite", "axon", "axon_linear", "xl_attention")
SCAFFOLDS: Final = ("pass_through", "pre_up", "pre_up_gated", "post_up", "post_up_gated", "adapter", "column")
PROGRAM_CHANCES: Final = (
    "add_region", "drop_region", "change_region", "add_edge", "drop_edge", "change_edge", "change_clock",
    "change_carrier", "change_slots", "change_mask", "change_learning",
)  # fmt: skip
"""Chances of changes of programs."""
NAMED: Final = (*CELLS, *SCAFFOLDS)
"""Kinds that it makes layers of where they are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridMutationConfig:
    """Chances of changes.

    Those of weights, activation, type and toggling are for each layer, those of programs for each program, the others
    for a child.

    Attributes
    ----------
    weight_rate, weight_replace : chance that a weight of a layer that is perturbed changes, and that it is drawn anew
    layer_rate : chance that the weights of a layer are perturbed at all
    weight_power : standard deviation of a change, in units of that of the fresh weights of the tensor
    activation, kind, toggle : another activation; another kind of layer with fresh weights; switched on or off
    add_layer : a layer that keeps the shape, at a free place of the grid; it begins close to the identity
    split_layer : a layer becomes the mean of two copies, which then differ
    add_region, drop_region, change_region : of a program: a copy of a region in a free place, which nothing hears at
        first; one that goes with its edges; another carrier, family, rule or size. These and the next ones are for each
        program
    add_edge, drop_edge, change_edge : an edge that brings nothing at first, where that is possible; one that goes;
        another rule, way of writing, weight, lag, mask, or other ends
    change_clock : a clock of a region or a condition of an edge comes, becomes looser or tighter, or goes
    change_carrier, change_slots : a filter that believes all that it is told, or a twin of a region with another
        carrier or with slots, which nothing hears at first; other slots; or they go
    change_mask, change_learning : a mask that hides nothing yet, or a loss of weight 0 of a region's own; other pairs,
        another weight; or they go. These four happen where they are set
    add_link, drop_link : a value that also flows to a later layer; one that no longer does
    activations, kinds : what mutation chooses from; cells and scaffolds of stacks, such as ``"slstm"`` or
        ``"post_up"``, only where they are named
    sequences : whether layers that look at other rows, as attention and recurrent ones, can come between rows of
        features. False suits rows that know nothing of each other, as the samples of a data set. None: as the problem
        says, and true where it says nothing
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
    # The mean difference of weights is at most 1 here, and structures are small: weights must count for more.
    return SpeciesConfig(threshold=2.0, threshold_step=0.1, weight=3.0, target=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridConfig(RunConfig):
    """A run of grids.

    Attributes
    ----------
    algorithm : "neat": species, fitness sharing and crossover aligned by markings. "elites": the best quarter of the
        population lives on, every other place goes to a spliced and mutated child of two of them
    mutation : section beside those of `RunConfig`
    """

    algorithm: Literal["neat", "elites"] = "neat"
    species: SpeciesConfig = field(default_factory=_grid_species)
    reproduction: ReproductionConfig = field(default_factory=ReproductionConfig)
    mutation: GridMutationConfig = field(default_factory=GridMutationConfig)
