"""Splice: crossover of two networks, whose weights may have different dtypes."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import ShapeError, SpecError
from volumetric.base.rng import generator
from volumetric.dtypes import encode
from volumetric.evolution.dna import Leaf, extract_dna, leaves
from volumetric.network import Network
from volumetric.network.weight_store import Params, WeightStore

if TYPE_CHECKING:
    from volumetric.loaders import LoadedModel

Mode = Literal["blend", "point", "uniform"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpliceConfig:
    """Settings of a splice.

    Attributes
    ----------
    mode : ``"blend"``: ``(1 - α) a + α b``. ``"point"``: the first part of a layer's weights from `a`, the rest from
        `b`. ``"uniform"``: each weight from a random parent
    share : part of `b` without fitness, 0 to 1: α of a blend, the part after the cut, the probability of a weight
    by_similarity : scale α by ``(1 + s) / 2``, with s the similarity of the two layers, so that dissimilar layers of a
        blend stay near `a` instead of cancelling
    seed : of the uniform mode
    """

    mode: Mode = "blend"
    share: float = 0.5
    by_similarity: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.mode not in MODES:
            raise SpecError(f"unknown splice mode {self.mode!r}", hint="one of " + ", ".join(MODES))
        if not 0 <= self.share <= 1:
            raise SpecError(f"share must be between 0 and 1, got {self.share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplicedLayer:
    """Result for one layer.

    Attributes
    ----------
    path : position of the layer, see `leaves`
    similarity : of the parents' layers; None if either has no weights to compare
    share : part of `b` in the child, 0 for a layer of `a`
    reason : reason why a layer with weights was not spliced, else ``""``
    """

    path: str
    similarity: float | None
    share: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Spliced:
    """A child: parent A's network, weights, and a result for each layer with weights."""

    network: Network
    params: Params
    report: tuple[SplicedLayer, ...]


def splice(
    a: tuple[Network, Mapping[str, WeightStore]],
    b: tuple[Network, Mapping[str, WeightStore]],
    config: SpliceConfig | None = None,
    *,
    fitness: tuple[float, float] | None = None,
) -> Spliced:
    """Cross two parents layer by layer; parent A is the template.

    The child has the structure and the dtypes of `a`. A layer is crossed if `b` has a layer of the same kind and shapes
    at the same position; its weights are read as plain numbers, so that the parents' dtypes may differ. Everything else
    is taken from `a` unchanged. The parents are not modified.

    Parameters
    ----------
    a, b : network and weights
    fitness : of both parents, larger is better; sets the part of `b` to `fitness_share`

    Raises
    ------
    SpecError
        A fitness is not a finite number.
    """
    config = config or SpliceConfig()
    share = config.share if fitness is None else fitness_share(*fitness)
    dna_a, dna_b = extract_dna(*a).signatures, extract_dna(*b).signatures
    others = {leaf.path: leaf for leaf in leaves(b[0])}
    stores = dict(a[1])
    report: list[SplicedLayer] = []
    done: set[str] = set()
    for number, leaf in enumerate(leaves(a[0])):
        keys = [key for key in leaf.keys.values() if key not in done]  # cross a shared weight at its first use
        if not leaf.params:
            continue
        reason = _obstacle(leaf, others.get(leaf.path))
        if reason:
            report.append(SplicedLayer(path=leaf.path, similarity=None, share=0.0, reason=reason))
            continue
        similarity = dna_a[leaf.path].similarity(dna_b[leaf.path])
        part = share
        if config.mode == "blend" and config.by_similarity and similarity is not None:
            part = share * (1 + similarity) / 2
        names = {key: name for name, key in leaf.keys.items() if key in keys}
        if leaf.spec.kind == "fabric":  # active nodes are part of the structure
            names = {key: name for key, name in names.items() if name != "living"}
        for place, (key, name) in enumerate(names.items()):
            rng = generator(config.seed, number, place)
            stores[key] = _cross(a[1][key], b[1][others[leaf.path].keys[name]], config.mode, part, rng)
        done.update(names)
        report.append(SplicedLayer(path=leaf.path, similarity=similarity, share=part))
    return Spliced(a[0], Params(stores), tuple(report))


def fitness_share(a: float, b: float) -> float:
    """Return the share of the second parent, ``b / (a + b)``; negative fitness is measured from twice the lesser.

    Two equal parents give 0.5 whatever their fitness, and the better one always has the larger part.
    """
    if not (np.isfinite(a) and np.isfinite(b)):
        raise SpecError(f"fitness must be finite to weigh parents, got {a} and {b}")
    floor = min(0.0, 2 * min(a, b))
    total = a + b - 2 * floor
    return (b - floor) / total if total > 0 else 0.5


def _obstacle(leaf: Leaf, other: Leaf | None) -> str:
    """Return why `leaf` cannot be crossed with `other`; empty if it can."""
    if other is None:
        return "parent B has no layer here"
    if other.kind != leaf.kind:
        return f"parent B has {other.kind} here"
    if getattr(other.spec, "without", ()) != getattr(leaf.spec, "without", ()):
        return "parent B lacks other nodes"
    theirs = {param.name: param.shape for param in other.params}
    mine = {param.name: param.shape for param in leaf.params}
    if theirs != mine:
        name = next(n for n in {**mine, **theirs} if mine.get(n) != theirs.get(n))
        return f"{name} is {mine.get(name, 'absent')} in A and {theirs.get(name, 'absent')} in B"
    return ""


def _cross(a: WeightStore, b: WeightStore, mode: Mode, share: float, rng: np.random.Generator) -> WeightStore:
    """Return the child's tensor in the scheme of `a`."""
    mine, theirs = a.values(), b.values()
    child = _mix(mine, theirs, mode, np.float32(share), rng)
    a.release()
    b.release()
    return WeightStore.from_packed(encode(child, a.scheme))


def _mix(
    a: NDArray[np.float32], b: NDArray[np.float32], mode: Mode, share: np.float32, rng: np.random.Generator
) -> NDArray[np.float32]:
    if mode == "blend":
        return (a + share * (b - a)).astype(np.float32, copy=False)
    flat = a.ravel().copy()
    if mode == "point":
        cut = flat.size - round(flat.size * float(share))
        flat[cut:] = b.ravel()[cut:]
    else:
        chosen = rng.random(flat.size, np.float32) < share
        flat[chosen] = b.ravel()[chosen]
    return flat.reshape(a.shape)


logger: logging.Logger = logging.getLogger(__name__)


def merge(
    a: LoadedModel, b: LoadedModel, config: SpliceConfig | None = None
) -> tuple[LoadedModel, tuple[SplicedLayer, ...]]:
    """Splice every layer of two models; tokenizer, templates and dtypes are those of `a`.

    Parameters
    ----------
    a, b : open models of the same architecture and sizes; their dtypes may differ
    config : as for `splice`; the default blends both equally

    Returns
    -------
    The merged model, which `volumetric.loaders.convert_model.save_model` writes in any format, and the result of each
    layer

    Raises
    ------
    ShapeError
        The networks or their classes differ.
    """
    if a.network != b.network:
        kinds = [len(model.network.layers) for model in (a, b)]
        raise ShapeError(
            f"{a.name} and {b.name} must have the same architecture ({kinds[0]} and {kinds[1]} layers)",
            hint="merge models of the same type and sizes, such as two fine-tunings of one model",
        )
    if a.classes != b.classes:
        raise ShapeError(
            f"{a.name} and {b.name} have other class names: {_class_list(a.classes)} and {_class_list(b.classes)}",
            hint="corresponding outputs must have the same meaning",
        )
    if a.inputs != b.inputs:
        logger.warning(
            "%s and %s standardise their inputs by different statistics: the merged model uses those of %s",
            *(a.name, b.name, a.name),
        )
    child = splice((a.network, a.params), (b.network, b.params), config)
    return dataclasses.replace(a, name=f"{a.name}+{b.name}", params=child.params), child.report


def _class_list(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:4]) + (", …" if len(classes) > 4 else "") if classes else "no names"
