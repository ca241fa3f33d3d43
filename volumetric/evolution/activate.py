"""Activation of genomes: pools on the device of a run, and the NumPy reference implementation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import UnsupportedError
from volumetric.devices.named_devices import AnyDevice, check_name, open_device
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS
from volumetric.evolution.genome import Genome, topological_order
from volumetric.evolution.pool import Pool
from volumetric.run.device import Device

if TYPE_CHECKING:
    from volumetric.devices.gpu.device import GpuDevice
    from volumetric.run.device import DeviceInfo

F64Array = NDArray[np.float64]


def activate(pool: Pool, inputs: Array, state: F64Array | None = None, *, device: AnyDevice = "auto") -> F64Array:
    """Return the outputs of all genomes, float64 [genomes, samples, outputs].

    Parameters
    ----------
    inputs : [samples, inputs], shared by all genomes, or [genomes, samples, inputs]
    state : for recurrent genomes, values of their nodes [genomes, max nodes, samples], read and overwritten; None
        starts from zero
    device : see `device_for`

    Raises
    ------
    ShapeError : inputs or state do not fit the pool
    UnsupportedError : recurrent genomes on a GPU, or a state on a device other than the CPU
    """
    return outputs_on(device_for(device), pool, inputs, state)


def device_for(device: AnyDevice) -> Device:
    """Return the device that activates genomes, from a name, as for `open_device`, or an open device.

    The CPU computes in float64, a GPU computes feed-forward genomes in float32, the reference device uses NumPy. "auto"
    is the device in VOLUMETRIC_DEVICE, else the CPU: linking and uploading a generation takes longer than activating
    it on a GPU (docs/evolution.md has the figures), and a seed gives the same run on every machine.
    """
    if not isinstance(device, str):
        return open_device(device)
    named = check_name(device)
    return _cpu() if named in ("auto", "cpu") else open_device(named)


@cache
def _cpu() -> Device:
    return open_device("cpu")


def outputs_on(device: Device | None, pool: Pool, inputs: Array, state: F64Array | None = None) -> F64Array:
    """Return what `activate` does, on an open device; None is one thread of the CPU."""
    if device is None or device.info.kind == "cpu":
        return pool.linked(1 if device is None else device.info.details["threads"]).activate(inputs, state)
    if state is not None:
        raise UnsupportedError(
            f"{device.info.name} does not support a state of genomes", hint='activate them with device="cpu"'
        )
    if device.info.kind == "gpu":
        return pool.links.on_gpu(cast("GpuDevice", device)).activate(np.asarray(inputs, np.float32)).astype(np.float64)
    x = pool.links.checked(inputs)
    return np.stack([activate_reference(pool.genome(g), x[g if len(x) > 1 else 0]) for g in range(len(pool))])


class Activator:
    """A genome ready to run; a recurrent genome keeps its node values between calls.

    Parameters
    ----------
    genome : the genome
    """

    def __init__(self, genome: Genome) -> None:
        self._pool, self._row = genome.home
        self._recurrent = genome.interface.recurrent
        self._state: F64Array | None = None

    def reset(self) -> None:
        """Set all nodes to zero."""
        self._state = None

    def __call__(self, inputs: Array | Sequence[Any]) -> F64Array:
        """Return outputs [samples, outputs] for inputs [samples, inputs], or [outputs] for [inputs].

        Raises
        ------
        ShapeError : the last axis does not match the genome's inputs, or the number of samples changed since `reset`
        """
        if self._recurrent and self._state is None:
            shape = np.shape(inputs)
            self._state = np.zeros((self._pool.nodes.shape[1], shape[0] if len(shape) == 2 else 1))
        return self._pool.links.activate_one(self._row, inputs, self._state)


def _erf(x: F64Array) -> F64Array:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x)


REFERENCE: dict[str, Callable[[F64Array], F64Array]] = {
    "steep_sigmoid": lambda x: 1 / (1 + np.exp(-4.9 * x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "linear": lambda x: x,
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x * np.sqrt(0.5))),
    "sin": np.sin,
    "gaussian": lambda x: np.exp(-x * x),
    "abs": np.abs,
    "square": np.square,
    "clamp": lambda x: np.clip(x, -1, 1),
}
"""Activations by name, in NumPy."""

_AGGREGATE: dict[str, Callable[[F64Array], F64Array]] = {
    "sum": lambda terms: terms.sum(0),
    "mean": lambda terms: terms.mean(0),
    "product": lambda terms: terms.prod(0),
    "max": lambda terms: terms.max(0),
    "min": lambda terms: terms.min(0),
}


def activate_reference(genome: Genome, inputs: Array) -> F64Array:
    """Return the outputs of one genome, float64 [samples, outputs], for inputs [samples, inputs]; from zero state."""
    interface = genome.interface
    values = dict(enumerate(np.asarray(inputs, np.float64).T))
    zero = np.zeros(len(inputs))
    values |= dict.fromkeys(genome.nodes["id"].tolist(), zero)
    with np.errstate(over="ignore"):
        if interface.recurrent:
            for _ in range(interface.steps):
                values |= {int(node["id"]): _fire(genome, node, values, zero) for node in genome.nodes}
        else:
            for position in topological_order(genome):
                node = genome.nodes[position]
                values[int(node["id"])] = _fire(genome, node, values, zero)
    return np.stack([values[interface.inputs + o] for o in range(interface.outputs)], axis=1)


def _fire(genome: Genome, node: np.void, values: dict[int, F64Array], zero: F64Array) -> F64Array:
    genes = genome.connections[(genome.connections["target"] == node["id"]) & genome.connections["enabled"]]
    terms = [gene["weight"] * values[int(gene["source"])] for gene in genes]
    total = _AGGREGATE[AGGREGATIONS[node["aggregation"]]](np.array(terms)) if terms else zero
    return REFERENCE[ACTIVATIONS[node["activation"]]](total + node["bias"])


_log = logging.getLogger(__name__)


class GenomePlacement:
    """A device for the genomes of each generation.

    Parameters
    ----------
    device : see `device_for`. A named device that would not be used raises an error; "auto" uses the CPU for genomes
        that the device in VOLUMETRIC_DEVICE does not activate

    Raises
    ------
    DeviceError : the device does not exist
    """

    def __init__(self, device: AnyDevice) -> None:
        self._named = device != "auto"
        self.device: Device = device_for(device)
        self.info: DeviceInfo = self.device.info
        self._used = False

    @property
    def elsewhere(self) -> bool:
        """Whether a device other than the CPU was named."""
        return self._named and self.info.kind != "cpu"

    def check(self, *, together: bool, executor: object) -> None:
        """Raise an error if this device would not be used.

        Parameters
        ----------
        together : whether genomes are scored together; functions of one genome activate it themselves, on the CPU
        executor : executor that scores parts of generations, or None

        Raises
        ------
        UnsupportedError : the device was named, and would not be used
        """
        name = self.info.name
        if self.elsewhere and not together:
            raise UnsupportedError(
                f"a fitness function of one genome runs on the CPU, not on {name}",
                hint="score all genomes at once: use a problem, or batched(function of a cohort)",
            )
        if self.elsewhere and executor is not None:
            raise UnsupportedError(
                f"workers and {name} exclude each other",
                hint="remove the workers: the device activates all genomes at once",
            )

    def check_genomes(self, genomes: object) -> None:
        """Raise an error for genomes that this device does not activate.

        Raises
        ------
        UnsupportedError : the device was named and cannot activate them
        """
        if not self.elsewhere:
            return
        if not isinstance(genomes, Pool):
            raise UnsupportedError(
                f"whole-network genomes cannot be activated together, on {self.info.name} or elsewhere",
                hint="remove the device",
            )
        if genomes.interface.recurrent and self.info.kind == "gpu":
            raise UnsupportedError("recurrent genomes have no GPU form", hint='evolve them with device="cpu"')

    def outputs(self, pool: Pool, inputs: Array) -> F64Array:
        """Return the outputs of all genomes; see `activate`."""
        self._used = True
        if self.info.kind == "cpu":
            return pool.linked(self.info.details["threads"]).activate(inputs)
        if pool.interface.recurrent and self.info.kind == "gpu" and not self._named:
            _log.info("recurrent genomes are not supported on the GPU: the CPU activates them")
            return pool.links.activate(inputs)
        return outputs_on(self.device, pool, inputs)

    def check_used(self, fitness: Any) -> None:
        """Raise an error if a device was named, but a generation was evaluated without it.

        Raises
        ------
        UnsupportedError : see above
        """
        if self.elsewhere and not self._used:
            raise UnsupportedError(
                f"{type(fitness).__name__} does not activate genomes together, so it cannot use {self.info.name} "
                "would be for",
                hint="remove the device",
            )
