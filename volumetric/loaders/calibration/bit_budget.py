"""Types by budget: measure the damage of each type to each tensor, and minimise the total for some bits per weight."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import Scheme
from volumetric.loaders.calibration.allocation import candidates_for, check_budget, choose
from volumetric.loaders.calibration.damage import measure_damage
from volumetric.loaders.gguf_export import gguf_tensors
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.target_schemes import target_schemes
from volumetric.network import Network


def schemes_for_budget(
    model: LoadedModel,
    ids: Sequence[int],
    bits: float,
    *,
    named: Mapping[str, str] | None = None,
    gguf: bool = False,
) -> tuple[dict[str, Scheme | None], dict[str, float]]:
    """Return the scheme of each parameter for a budget, and the cost of each choice.

    Weight matrices and embedding tables are chosen. Gains, biases, routers of mixtures and parameters that cannot be
    measured stay as they are, and count in the budget. Experts of a layer share one scheme for each of their matrices,
    as do the parameters of one tensor in a GGUF file.

    Parameters
    ----------
    ids : calibration text as token ids
    bits : maximum stored bits per weight, including scales
    named : pattern of parameters → fixed scheme, at any cost
    gguf : whether to choose only schemes that a GGUF file can store

    Returns
    -------
    Scheme of each parameter, None to keep the stored one; and parameter → estimated KL divergence in nats per token

    Raises
    ------
    UnsupportedError
        The budget is not above 0 or too small, the text is too short, or the network cannot be measured.
    """
    if not bits > 0:
        raise UnsupportedError(f"{bits:g} bits per weight are not a positive number", hint="give a number such as 4.5")
    network = model.network
    targets = target_schemes(network, None, named)
    groups = gguf_tensors(model) if gguf else _experts(network)
    one_of = {key for keys in groups.values() for key in keys} if gguf else network.param_specs().keys()
    candidates = {
        key: _add_stored_scheme(model.params[key].scheme, candidates_for(spec.shape[-1], whole=gguf), gguf=gguf)
        for key, spec in network.param_specs().items()
        if spec.packable and not spec.delicate and targets[key] is None and len(spec.shape) == 2 and key in one_of
    }
    numbers = sum(prod(store.shape) for store in model.params.values())
    fixed = sum(
        (targets[key] or store.scheme).nbytes(store.shape)
        for key, store in model.params.items()
        if key not in candidates
    )
    check_budget(bits, numbers, fixed + _least_scheme(model, candidates, groups))
    damages = measure_damage(model, ids, candidates)
    measured = {damage.key: damage for damage in damages}
    left = {key: targets[key] or store.scheme for key, store in model.params.items() if key not in measured}
    numbers = sum(prod(model.params[key].shape) for key in left)
    nbytes = sum(scheme.nbytes(model.params[key].shape) for key, scheme in left.items())
    chosen = choose(damages, bits, groups=groups, others=(numbers, nbytes))
    schemes: dict[str, Scheme | None] = {key: choice.scheme for choice in chosen for key in choice.keys}
    costs = {key: measured[key].nats[choice.scheme] for choice in chosen for key in choice.keys}
    return targets | schemes, {key: costs[key] for key in network.param_specs() if key in costs}


def _add_stored_scheme(stored: Scheme, candidates: tuple[Scheme, ...], *, gguf: bool) -> tuple[Scheme, ...]:
    """Candidates, and the scheme in which the tensor is stored, which costs nothing."""
    if stored in candidates or (gguf and stored.gguf_type is None):
        return candidates
    return (*candidates, stored)


def _least_scheme(
    model: LoadedModel, candidates: Mapping[str, tuple[Scheme, ...]], groups: Mapping[str, Sequence[str]]
) -> int:
    """Minimum bytes of the tensors with candidates; tensors of a group share a scheme."""
    grouped = [[key for key in keys if key in candidates] for keys in groups.values()]
    alone = candidates.keys() - {key for keys in grouped for key in keys}
    least = 0
    for keys in [*filter(None, grouped), *([key] for key in alone)]:
        stores = [model.params[key] for key in keys]
        common = set(candidates[keys[0]]).intersection(*(candidates[key] for key in keys))
        sizes = [sum(scheme.nbytes(store.shape) for store in stores) for scheme in common]
        # Parameters that cannot be measured keep their stored scheme.
        least += min([*sizes, sum(store.scheme.nbytes(store.shape) for store in stores)])
    return least


def _experts(network: Network) -> dict[str, list[str]]:
    """Matrices with one name in all branches of a mixture: name with ``*`` for the branch → parameters."""
    specs = network.param_specs()
    mixtures = {key.removesuffix("gate/weight") for key, spec in specs.items() if spec.delicate}
    groups: dict[str, list[str]] = {}
    for key in specs:
        for mixture in mixtures:
            rest = key.removeprefix(mixture)
            if rest != key and (match := re.fullmatch(r"\d+(/.+)", rest)):
                groups.setdefault(f"{mixture}*{match[1]}", []).append(key)
    return {name: keys for name, keys in groups.items() if len(keys) > 1}
