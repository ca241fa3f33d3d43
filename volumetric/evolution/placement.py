"""Where the genomes of a run are activated together."""

from __future__ import annotations

import logging
from typing import Any

from volumetric._typing import Array
from volumetric.errors import UnsupportedError
from volumetric.evolution.activate import F64Array, device_for, outputs_on
from volumetric.evolution.pool import Pool
from volumetric.runtime.open import AnyDevice

_log = logging.getLogger(__name__)


class Placement:
    """A device for the genomes of each generation.

    Parameters
    ----------
    device : see `device_for`. One that is named and would not be used is refused; "auto" takes the CPU for what the
        device of VOLUMETRIC_DEVICE does not activate

    Raises
    ------
    DeviceError : there is no such device
    """

    def __init__(self, device: AnyDevice) -> None:
        self._named = device != "auto"
        self.device = device_for(device)
        self.info = self.device.info
        self._used = False

    @property
    def elsewhere(self) -> bool:
        """Whether a device other than the CPU was named."""
        return self._named and self.info.kind != "cpu"

    def check(self, *, together: bool, executor: object) -> None:
        """Refuse what this device has no part in.

        Parameters
        ----------
        together : whether genomes are scored together; functions of one genome call it themselves, on the CPU
        executor : where parts of generations are scored, or None

        Raises
        ------
        UnsupportedError : the device was named, and would not be used
        """
        name = self.info.name
        if self.elsewhere and not together:
            raise UnsupportedError(
                f"a fitness function of one genome runs on the CPU, not on {name}",
                hint="score all genomes at once: a problem, or batched(function of a cohort)",
            )
        if self.elsewhere and executor is not None:
            raise UnsupportedError(f"workers and {name} exclude each other", hint="it takes all genomes at once")

    def check_genomes(self, genomes: object) -> None:
        """Refuse genomes that this device does not activate.

        Raises
        ------
        UnsupportedError : the device was named, and cannot
        """
        if not self.elsewhere:
            return
        if not isinstance(genomes, Pool):
            raise UnsupportedError(
                f"genomes that are whole networks are not activated together, on {self.info.name} or elsewhere",
                hint="leave the device out",
            )
        if genomes.interface.recurrent and self.info.kind == "gpu":
            raise UnsupportedError("recurrent genomes have no GPU form", hint='evolve them with device="cpu"')

    def outputs(self, pool: Pool, inputs: Array) -> F64Array:
        """Return the outputs of all genomes; see `activate`."""
        self._used = True
        if self.info.kind == "cpu":
            return pool.linked(self.info.details["threads"]).activate(inputs)
        if pool.interface.recurrent and self.info.kind == "gpu" and not self._named:
            _log.info("recurrent genomes have no GPU form: they are activated on the CPU")
            return pool.links.activate(inputs)
        return outputs_on(self.device, pool, inputs)

    def check_used(self, fitness: Any) -> None:
        """Refuse a named device where a generation was evaluated without it.

        Raises
        ------
        UnsupportedError : see above
        """
        if self.elsewhere and not self._used:
            raise UnsupportedError(
                f"{type(fitness).__name__} does not activate genomes together, which is what {self.info.name} "
                "would be for",
                hint="leave the device out",
            )
