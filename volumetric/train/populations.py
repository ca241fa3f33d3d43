"""Training of fabrics whose nodes are masked and unmasked between updates: weights of masked nodes do not change."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_entries import param_entries
from volumetric.layers.node_layer import NodeEntries, node_layer_at, node_layers_in, places_of
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.observe import Observer
from volumetric.train.arrays import Absent
from volumetric.train.data import Batch
from volumetric.train.learner import Learner, LearnerState, StepReport, Watchable, WindowedLearner
from volumetric.train.output_losses import Tally
from volumetric.train.precision import master_of, trained_store

MASTERS = ""
"""Name of the weights among the slots of the optimiser."""


def with_populations(learner: Learner, network: Network) -> Learner:
    """Return a learner that masks nodes by `Batch.absent`, if the network has fabrics that support masking."""
    if not any(spec.dynamic for spec in node_layers_in(network.layers, Fabric).values()):
        return learner
    return PopulationLearner(learner, network)


class PopulationLearner:
    """A learner for networks with dynamic fabrics.

    A parameter that belongs only to masked nodes has no gradient, but an update would still change it by weight decay
    and optimiser state. This learner keeps the parameter and its optimiser slots unchanged until one of its nodes is
    active again. Until then nothing reads the changed values on the device.

    Parameters
    ----------
    learner : makes the updates; it gets other arrays when the set of active nodes changes, without compilation
    """

    def __init__(self, learner: Learner, network: Network) -> None:
        self._learner, self._network = learner, network
        every = node_layers_in(network.layers, Fabric)
        self._uses = Counter(network.resolve(f"{path}/{p.name}") for path, of in every.items() for p in of.params())
        self._fabrics: dict[str, tuple[str, Fabric]] = {
            path: (network.resolve(f"{path}/living"), spec) for path, spec in every.items() if spec.dynamic
        }
        self._entries: dict[str, tuple[tuple[str, NodeEntries], ...]] = {
            path: tuple((network.resolve(f"{path}/{name}"), of) for name, of in param_entries(spec).items())
            for path, (_, spec) in self._fabrics.items()
        }
        state, keys = learner.state, {key for key, _ in self._fabrics.values()}
        frozen = keys - state.buffers.keys()
        self._fixed = (
            {key: store.values() for key, store in learner.params().items() if key in frozen} if frozen else {}
        )
        self._freeze_masked(state)

    @property
    def state(self) -> LearnerState:
        """The state that the next update depends on."""
        return self._with_frozen(self._learner.state)

    def restore(self, state: LearnerState) -> None:
        """Continue from `state`. Raises `CheckpointError` if its arrays do not match this network."""
        self._learner.restore(state)
        self._freeze_masked(state)

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Make one update of the nodes that are active in these batches; a fault restores the previous active nodes."""
        before = self._living
        living = [self._living_nodes(getattr(batch, "absent", None)) for batch in batches]
        for other in living[1:]:
            if any(not np.array_equal(other[key], value) for key, value in living[0].items()):
                raise SpecError(
                    "batches of one update mask different nodes", hint="set accumulate=1, or mask the same nodes"
                )
        self._set_living(living[0])
        report = self._learner.step([_without_absent(batch) for batch in batches], rate=rate)
        if report.fault is not None:
            self._set_living(before)
        return report

    def windows(self, batch: Batch) -> Iterator[Batch]:
        """Yield the windows of a batch, all with the active nodes of the batch."""
        assert isinstance(self._learner, WindowedLearner)
        self._set_living(self._living_nodes(batch.absent))
        yield from self._learner.windows(_without_absent(batch))

    def evaluate(self, batch: Batch) -> Tally:
        """Return the loss of a batch with the active nodes of the batch."""
        with self._living_as(batch):
            return self._learner.evaluate(_without_absent(batch))

    def measure(self, batch: Batch) -> tuple[Tally, Mapping[str, Array]]:
        """Return the loss of a batch as `evaluate` does, and the outputs that have targets."""
        with self._living_as(batch):
            return self._learner.measure(_without_absent(batch))

    def params(self) -> Params:
        """Return the current weights."""
        stores = dict(self._learner.params())
        for key, (still, values) in self._still.get(MASTERS, {}).items():
            value = np.where(still, values, master_of(stores[key]))
            stores[key] = trained_store(value, stores[key].scheme)
        return Params(stores)

    def watch(self, observers: Sequence[Observer]) -> None:
        """Report statistics of every layer, forward and backward, to `observers` from the next update on."""
        if not isinstance(self._learner, Watchable):
            raise UnsupportedError(f"{type(self._learner).__name__} does not support observers")
        self._learner.watch(observers)

    @contextmanager
    def _living_as(self, batch: Batch) -> Iterator[None]:
        before = self._living
        self._set_living(self._living_nodes(batch.absent))
        try:
            yield
        finally:
            self._set_living(before)

    def _living_nodes(self, absent: Absent) -> Mapping[str, Array]:
        """Return the active nodes by the key of their buffer."""
        if absent is None:
            return self._living
        masks = absent.items() if isinstance(absent, Mapping) else [(None, absent)]
        living = dict(self._living)
        for at, nodes in masks:
            path, spec = node_layer_at(self._network.layers, at, Fabric)  # pyright: ignore[reportArgumentType]  (a path)
            key = self._network.resolve(f"{path}/living")
            if key not in living:
                raise SpecError(
                    f"the nodes of the fabric at {path!r} cannot be masked here",
                    hint="declare the fabric with dynamic=True, and do not freeze its buffer",
                )
            living[key] = np.ones_like(living[key])
            living[key][places_of(spec, nodes)] = 0
        return living

    def _set_living(self, living: Mapping[str, Array]) -> None:
        """Set the active nodes; nodes that were masked get their previous weights back."""
        if all(np.array_equal(living[key], value) for key, value in self._living.items()):
            return
        state = self.state
        self.restore(dataclasses.replace(state, buffers={**state.buffers, **living}))

    def _freeze_masked(self, state: LearnerState) -> None:
        """Store the parameters and slots of masked nodes."""
        keys = {key for key, _ in self._fabrics.values()}
        self._living = {key: state.buffers[key] for key in keys if key in state.buffers}
        masks: dict[str, list[Array]] = {}
        for path, (key, spec) in self._fabrics.items():
            living = self._living[key] if key in self._living else self._fixed[key]
            masked = spec.facts.order[living == 0]
            for param, of in self._entries[path] if len(masked) else ():
                places = of.entries_of(masked)
                if places.size and param in state.masters:
                    masks.setdefault(param, []).append(of.mask(places, state.masters[param]))
        # A parameter shared by several fabrics is unchanged if none of them has an active node for it.
        still = {key: np.logical_and.reduce(of) for key, of in masks.items() if len(of) == self._uses[key]}
        self._still = {
            name: {key: (where, arrays[key]) for key, where in still.items()}
            for name, arrays in ((MASTERS, state.masters), *state.slots.items())
        }

    def _with_frozen(self, state: LearnerState) -> LearnerState:
        """Return a state with the stored values put back."""

        def restore_still(name: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
            still = self._still.get(name, {})
            return {
                k: np.where(still[k][0], still[k][1], array) if k in still else array for k, array in arrays.items()
            }

        slots = {name: restore_still(name, arrays) for name, arrays in state.slots.items()}
        return dataclasses.replace(state, masters=restore_still(MASTERS, state.masters), slots=slots)


def _without_absent(batch: Batch) -> Batch:
    """Return a batch with explicit masked nodes."""
    return dataclasses.replace(batch, absent=None) if isinstance(batch, Batch) else batch
