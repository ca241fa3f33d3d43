"""The arrays of a learner on its device: masters, slots and buffers, update rules, and programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import Scheme
from volumetric.graph import Graph, GraphBuilder, GraphDevice, GraphProgram, NumpyGraphs
from volumetric.graph.interpret import Float
from volumetric.graph.numeric.counter_noise import noise_key
from volumetric.graph.parameter_stacks import ParameterStacks
from volumetric.graph.program_cache import ProgramCache
from volumetric.graph.rounded_products import with_products
from volumetric.network import Network, check_params
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run.graph.loss_scale import FIRST, LOSS_SCALE
from volumetric.run.graph.training_graphs import ForwardPass
from volumetric.run.graph.weight_updates import UpdateRule, slot_key
from volumetric.run.plan import Plan, with_outputs
from volumetric.train.forward_weights import ForwardWeights
from volumetric.train.learner import LearnerOptions, LearnerState
from volumetric.train.lora import DOWN, UP
from volumetric.train.output_losses import Losses, Tally
from volumetric.train.precision import schemes_of, trained_store
from volumetric.train.trainable import first_masters, kept_store, learned_buffers, trained_keys

if TYPE_CHECKING:
    from volumetric.graph.numpy_graphs import NumpyStore


class TrainedArrays:
    """Masters, slots and sums of gradients as float32 buffers of a store of a `GraphDevice`.

    Parameters
    ----------
    plan : the execution plan
    stacked : returns the parameters that are stored stacked

    Attributes
    ----------
    float : dtype of batches on the device
    schemes : of all parameters
    trained_keys : keys of the network's parameters that are trained
    shapes : key → shape of each trained array
    buffers : key → shape of each buffer that layers change
    updates : number of updates made

    Raises
    ------
    UnsupportedError
        The device cannot hold a scheme, as 64-bit types on most GPUs, or has no such products.
    """

    def __init__(
        self,
        network: Network,
        params: Params,
        options: LearnerOptions,
        device: GraphDevice,
        plan: Plan,
        stacked: Callable[[TrainedArrays], ParameterStacks],
    ) -> None:
        check_params(network, params)
        if options.compute not in device.products:
            raise UnsupportedError(
                f"this device has no products of {options.compute} in training",
                hint=f"use compute={device.products[0]!r}, or device='gpu'",
            )
        self.network: Network = network
        self.options: LearnerOptions = options
        self.device: GraphDevice = device
        self.plan: Plan = plan
        self.losses: Losses = options.losses
        self.float: Float = device.dtype if isinstance(device, NumpyGraphs) else np.float32
        self.schemes: dict[str, Scheme] = schemes_of(network, params, options.dtype)
        self.trained_keys: list[str] = trained_keys(plan, params, options)
        masters = first_masters(params, self.trained_keys, options)
        self.shapes: dict[str, tuple[int, ...]] = {key: w.shape for key, w in masters.items()}
        self.buffers: dict[str, tuple[int, ...]] = {
            key: params[key].shape for key in learned_buffers(plan, params, options)
        }
        self.updates: int = 0
        self.store: NumpyStore | Any = device.store()
        self.programs: ProgramCache = ProgramCache()
        self._kept = {
            key: kept_store(store, options, self.schemes[key], trained=key in self.trained_keys)
            for key, store in params.items()
        }
        self._beside: list[str] = []
        """Keys of trained arrays outside of the network."""
        self._parts: dict[frozenset[str], Plan] = {}
        self._rules: dict[frozenset[str], UpdateRule] = {}
        self.stacks: ParameterStacks = stacked(self)
        self._store_masters(masters)
        if options.scaled:
            self.store.write(LOSS_SCALE, np.array(FIRST, np.float32))
        fixed = [key for key in plan.params if key not in self.shapes]
        self.stacks.write_to(self.store, fixed, lambda key: self._kept[key].values())

    def train_beside(self, masters: Mapping[str, Array]) -> None:
        """Train additional arrays that are not part of the network."""
        self._beside += masters
        self.shapes |= {key: w.shape for key, w in masters.items()}
        self._store_masters(masters)

    def _store_masters(self, masters: Mapping[str, Array]) -> None:
        """Put the trained arrays into the store, with slots of zeros."""
        self.stacks.write_to(self.store, masters, lambda key: np.asarray(masters[key], self.float))
        for key, shape in self.stacks.shapes({key: w.shape for key, w in masters.items()}).items():
            for slot in self.options.optimiser.slots:
                self.store.write(slot_key(slot, key), np.zeros(shape, np.float32))

    @property
    def state(self) -> LearnerState:
        """Copies of all arrays and the number of updates."""
        slots = {
            slot: self.stacks.get(self.store, self.shapes, partial(slot_key, slot))
            for slot in self.options.optimiser.slots
        }
        scale = {LOSS_SCALE: self.store.get(LOSS_SCALE)} if self.options.scaled else {}
        return LearnerState(self.updates, self._masters(), slots, self._learned() | scale)

    def restore(self, state: LearnerState) -> None:
        """Load arrays of matching shapes."""
        self.stacks.write_to(self.store, state.masters, state.masters.__getitem__)
        for slot, arrays in state.slots.items():
            self.stacks.write_to(self.store, arrays, arrays.__getitem__, partial(slot_key, slot))
        for key, array in state.buffers.items():
            self.store.write(key, array)
        self.updates = state.updates

    def params(self) -> Params:
        """Return the current weights; stores that are neither trained nor converted are the originals."""
        masters = self._masters()
        if self.options.overlay is not None:
            return self.options.overlay.merge(self._kept, masters)
        trained = {key: trained_store(w, self.schemes[key]) for key, w in masters.items() if key in self.schemes}
        trained |= {key: WeightStore.from_array(value) for key, value in self._learned().items()}
        return Params({key: trained.get(key, store) for key, store in self._kept.items()})

    def _masters(self) -> dict[str, Array]:
        return self.stacks.get(self.store, self.shapes)

    def _learned(self) -> dict[str, Array]:
        return {key: self.store.get(key) for key in self.buffers}

    def part(self, outputs: Collection[str]) -> Plan:
        """Return the part of the network that some outputs need."""
        names = frozenset(outputs)
        return self._parts.get(names) or self._parts.setdefault(names, with_outputs(self.plan, names))

    def rule(self, outputs: Collection[str]) -> UpdateRule:
        """Return the update rule for the losses of some outputs: arrays that these do not need are unchanged."""
        names = frozenset(outputs)
        return self._rules.get(names) or self._rules.setdefault(names, self._rule_of(self.part(names)))

    def _rule_of(self, plan: Plan) -> UpdateRule:
        options, optimiser = self.options, self.options.optimiser
        needed = {*plan.params, *self._beside}
        if options.overlay is not None:
            needed |= {key + end for key in plan.params for end in (DOWN, UP)}
        shapes = self.stacks.shapes({key: shape for key, shape in self.shapes.items() if key in needed})
        updates: dict[str, Mapping[str, Any]] = {}
        for key, shape in shapes.items():
            axes = len(shape) - (key in self.stacks.by_buffer)
            updates[key] = optimiser.for_weight(axes, decay_vectors=options.decay_vectors).attributes
        buffers = {key: shape for key, shape in self.buffers.items() if key in plan.params}
        return UpdateRule(
            masters=shapes,
            updates=updates,
            slots=optimiser.slots,
            clip=options.clip,
            buffers=buffers,
            scaled=options.scaled,
        )

    def weights(self, work: GraphBuilder) -> ForwardWeights:
        """Return the emitter of weights for the forward pass."""
        return ForwardWeights(
            work=work,
            stacks=self.stacks,
            schemes=self.schemes,
            shapes=self.shapes,
            overlay=self.options.overlay,
            overlaid=self.trained_keys,
        )

    def knobs(self, rate: float, scale: float, step: int | None = None) -> Array:
        """Return the host inputs of update `step`, by default the next one."""
        step = self.updates + 1 if step is None else step
        with np.errstate(over="ignore"):
            return np.array([rate, scale, *self.options.optimiser.knobs(step)], np.float64).astype(self.float)

    def noise(self, of: ForwardPass, part: int, ahead: int = 0) -> list[Array]:
        """Return the random key of the pass of batch `part` in the update after `ahead` others, if it draws numbers."""
        return [self.noise_key(self.updates + ahead, part)] if of.draws else []

    def noise_key(self, update: int, part: int) -> Array:
        """Return the random key of one pass of an update in graph form."""
        return np.array(noise_key(self.options.seed, update, part), np.uint32).view(np.int32)

    def program(self, name: str, of: Any, make: Callable[[], Graph], *more: object) -> GraphProgram:
        """Return a program, compiled once for each name, `key` of the pass `of`, and `more`."""
        key = (name, None if of is None else of.key, *more)
        products = self.options.compute
        return self.programs.get(key, lambda: self.device.compile(with_products(make(), products), self.store))

    def fault(self, tally: Tally, otherwise: str = "") -> str:
        """Name the first loss that is not finite; if all are finite, return `otherwise`."""
        if otherwise and np.isfinite(tally.total):
            return otherwise
        return self.losses.fault({name: of.total for name, of in tally.terms.items()})
