"""Selection of trained weights of a network, and their schemes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.dtypes import Scheme
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run.plan import Plan
from volumetric.train.learner import LearnerOptions, LearnerState
from volumetric.train.precision import master_of, matching_keys, trained_store

OTHER_RUN: Final = "resume with the network and settings of that run, or train in another directory"
"""Hint for a checkpoint that does not fit."""


def trained_keys(plan: Plan, params: Params, options: LearnerOptions) -> list[str]:
    """Return the keys of the trained weights, in the order of `params`."""
    frozen = set().union(*(matching_keys(pattern, params) for pattern in options.frozen))
    trained = plan.params.keys() - plan.buffers - frozen
    if options.overlay is not None:
        trained &= set(options.overlay.keys(params))
    if not trained:
        raise SpecError("no parameters to train", hint="freeze fewer parameters, or add a layer with parameters")
    return [key for key in params if key in trained]


def learned_buffers(plan: Plan, params: Params, options: LearnerOptions) -> list[str]:
    """Return the keys of the buffers that training changes, in the order of `params`.

    Frozen buffers do not change. With overlays no buffer changes: overlays are stored separately from the weights, and
    must match the running statistics of the weights.
    """
    if options.overlay is not None:
        return []
    frozen = set().union(*(matching_keys(pattern, params) for pattern in options.frozen))
    return [key for key in params if key in plan.buffers - frozen]


def first_masters(params: Params, keys: Iterable[str], options: LearnerOptions) -> Mapping[str, Array]:
    """Return the initial trained arrays: weights, or the factors of overlays."""
    if options.overlay is None:
        return {key: master_of(params[key]) for key in keys}
    return options.overlay.begin({key: params[key] for key in keys})


def kept_store(store: WeightStore, options: LearnerOptions, scheme: Scheme, *, trained: bool) -> WeightStore:
    """Return a weight in its storage scheme; a trained weight is encoded at the first use."""
    if (trained and options.overlay is None) or store.scheme == scheme:
        return store
    return trained_store(master_of(store), scheme)


def check_state(state: LearnerState, own: LearnerState, options: LearnerOptions) -> None:
    """Raise `CheckpointError` unless the arrays of `state` match `own`, those of this network and optimiser."""
    expected = {key: (w.shape, w.dtype) for key, w in own.masters.items()}
    for name, arrays in (("weights", state.masters), *state.slots.items()):
        if {key: (w.shape, w.dtype) for key, w in arrays.items()} != expected:
            raise CheckpointError(
                f"the checkpoint's {name} do not fit the trained parameters of this network",
                hint=OTHER_RUN,
            )
    if {key: b.shape for key, b in state.buffers.items()} != {key: b.shape for key, b in own.buffers.items()}:
        raise CheckpointError(
            "the buffers of the checkpoint, as running statistics, do not match this network",
            hint=OTHER_RUN,
        )
    if set(state.slots) != set(options.optimiser.slots):
        raise CheckpointError(
            f"the checkpoint was written with another optimiser than {options.optimiser.kind}",
            hint=OTHER_RUN,
        )
