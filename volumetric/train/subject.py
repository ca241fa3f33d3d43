"""What is trained: which weights of a network, in which schemes, and what of a batch is one pass through it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from volumetric._typing import Array
from volumetric.dtypes import Scheme
from volumetric.errors import CheckpointError, ShapeError, SpecError
from volumetric.layers import LayerSpec
from volumetric.network import INPUT
from volumetric.runtime.lower import mixing_step
from volumetric.runtime.plan import Plan, Step
from volumetric.runtime.state import by_name, check_inputs, check_vocabulary
from volumetric.train.learner import LearnerOptions, LearnerState
from volumetric.train.precision import master_of, matching, trained_store
from volumetric.weights import Params, WeightStore

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


def first_masters(params: Params, wanted: Iterable[str], options: LearnerOptions) -> Mapping[str, Array]:
    """Return the arrays that are trained, as they are at the start: weights, or the factors of overlays on them."""
    if options.overlay is None:
        return {key: master_of(params[key]) for key in wanted}
    return options.overlay.begin({key: params[key] for key in wanted})


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


class BatchForm:
    """What batches of a plan are, as far as that follows from the plan: found once, and not at each update.

    Parameters
    ----------
    plan : of what is computed
    learned : keys of the buffers that training changes
    """

    def __init__(self, plan: Plan, learned: Collection[str] = ()) -> None:
        mixing = mixing_step(plan)
        self._plan = plan
        self._mixing = None if mixing is None else f"{mixing.op} at {mixing.where}"
        """The first layer for which the rows of a call are one sequence. Rows of several axes are samples."""
        self._statistics = next((f"{s.op} at {s.where}" for s in plan.steps if _takes_statistics(s, learned)), None)
        self._axes = len(plan.values[plan.inputs[INPUT]].shape)
        self._ids = [name for name, i in plan.inputs.items() if plan.values[i].dtype == "int32"]

    def are_sequences(self, inputs: Mapping[str, Array]) -> bool:
        """Whether the samples of a batch are sequences of rows; raise `ShapeError` where they would have to be."""
        x = by_name(self._plan, inputs)[INPUT]
        if x.ndim == self._axes + 1:
            return True
        if self._mixing is not None:
            raise ShapeError(
                f"{self._mixing} looks at other rows, so a sample is a sequence of rows, but inputs of shape {x.shape} "
                "are one sequence",
                hint="give inputs, targets and mask one more axis in front: [samples, T, …]",
            )
        return False

    def check_statistics(self, inputs: Mapping[str, Array]) -> None:
        """Raise `SpecError` where a layer takes statistics of a batch whose samples are sequences of rows."""
        if self._statistics is not None and self.are_sequences(inputs):
            raise SpecError(
                f"{self._statistics} takes statistics over the samples of a batch, which cannot be sequences",
                hint="make a sequence one row of the network: input_shape=(T, features)",
            )

    def checked(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], bool]:
        """Return the inputs of a batch in the plan's order and dtypes, with their axes; and whether they are sequences.

        Raises
        ------
        ShapeError : an input is missing or unknown, or samples are not what it reads, or not as many or as long as
            others
        GenerationError : an id has no row in an embedding
        """
        inputs = by_name(self._plan, inputs)
        many = self.are_sequences(inputs)
        lead = inputs[INPUT].shape[: 2 if many else 1]
        for name, x in inputs.items():
            if x.shape[: len(lead)] != lead:
                raise ShapeError(
                    f"the inputs of a batch have the same samples and lengths, got {INPUT} "
                    f"{list(inputs[INPUT].shape)} and {name} {list(x.shape)}"
                )
        rows = {name: x.reshape(-1, *x.shape[2:]) if many else x for name, x in inputs.items()}
        checked = check_inputs(self._plan, rows)
        for name in self._ids:
            check_vocabulary(self._plan, checked[name].ravel(), name)
        return {name: x.reshape(inputs[name].shape) for name, x in checked.items()}, many


def _takes_statistics(step: Step, learned: Collection[str]) -> bool:
    """Whether a layer takes statistics of the batch while it trains."""
    spec: LayerSpec | None = step.attrs.get("spec")
    if spec is None or spec.batch_statistics == "never":
        return False
    return all(step.params[b.name] in learned for b in spec.buffers())
