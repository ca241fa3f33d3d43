"""What is trained: which weights of a network, and in which schemes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.dtypes import Scheme
from volumetric.network.weights import Params, WeightStore
from volumetric.run.plan import Plan
from volumetric.train.learner import LearnerOptions, LearnerState
from volumetric.train.precision import master_of, matching, trained_store

OTHER_RUN: Final = "resume with the network and the settings of that run, or train to another directory"
"""What to do about a checkpoint that does not fit."""


def trained_keys(plan: Plan, params: Params, options: LearnerOptions) -> list[str]:
    """Return the keys of the weights whose gradients are wanted, in the order of `params`."""
    frozen = set().union(*(matching(pattern, params) for pattern in options.frozen))
    trained = plan.params.keys() - plan.buffers - frozen
    if options.overlay is not None:
        trained &= set(options.overlay.keys(params))
    if not trained:
        raise SpecError("there is nothing to train", hint="freeze fewer parameters, or add a layer that has some")
    return [key for key in params if key in trained]


def learned_buffers(plan: Plan, params: Params, options: LearnerOptions) -> list[str]:
    """Return the keys of the buffers that training changes, in the order of `params`.

    Frozen ones stay as they are. So do all where weights get overlays: these are kept apart from the weights, and would
    belong to other running statistics than those that the weights have.
    """
    if options.overlay is not None:
        return []
    frozen = set().union(*(matching(pattern, params) for pattern in options.frozen))
    return [key for key in params if key in plan.buffers - frozen]


def first_masters(params: Params, keys: Iterable[str], options: LearnerOptions) -> Mapping[str, Array]:
    """Return the arrays that are trained, as they are at the start: weights, or the factors of overlays on them."""
    if options.overlay is None:
        return {key: master_of(params[key]) for key in keys}
    return options.overlay.begin({key: params[key] for key in keys})


def kept_store(store: WeightStore, options: LearnerOptions, scheme: Scheme, *, trained: bool) -> WeightStore:
    """Return a weight in the scheme in which it is to be stored; a trained one is encoded when it is asked for."""
    if (trained and options.overlay is None) or store.scheme == scheme:
        return store
    return trained_store(master_of(store), scheme)


def check_state(state: LearnerState, own: LearnerState, options: LearnerOptions) -> None:
    """Raise `CheckpointError` where the arrays of `state` are not those of this network and optimiser, as `own` are."""
    expected = {key: (w.shape, w.dtype) for key, w in own.masters.items()}
    for name, arrays in (("weights", state.masters), *state.slots.items()):
        if {key: (w.shape, w.dtype) for key, w in arrays.items()} != expected:
            raise CheckpointError(
                f"the checkpoint's {name} do not fit the trained parameters of this network",
                hint=OTHER_RUN,
            )
    if {key: b.shape for key, b in state.buffers.items()} != {key: b.shape for key, b in own.buffers.items()}:
        raise CheckpointError(
            "the checkpoint's buffers, as running statistics, are not those of this network",
            hint=OTHER_RUN,
        )
    if set(state.slots) != set(options.optimiser.slots):
        raise CheckpointError(
            f"the checkpoint is of another optimiser than {options.optimiser.kind}",
            hint=OTHER_RUN,
        )
