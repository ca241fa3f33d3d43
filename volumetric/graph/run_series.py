"""Several runs of one program in a row, which a device may do in one submission.

An input of a run may be rows of an array that stays on the device, or an output of the run before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from volumetric.base._typing import Array
from volumetric.graph.graph_device import GraphProgram


@dataclass(frozen=True, slots=True, eq=False)
class PickedRows:
    """An input of a run: rows of an array that other runs pick from, too.

    Attributes
    ----------
    array : float32 or int32, contiguous; a device may hold a copy of it for as long as it lives, so nobody changes it
    ids : int32, the rows to pick, in order
    """

    array: Array
    ids: Array

    def rows(self) -> Array:
        """Return the rows."""
        return self.array[self.ids]


SeriesInput: TypeAlias = "Array | PickedRows"


class Carry(NamedTuple):
    """From the second run on, an input is an output of the run before; the first run has its own value.

    Attributes
    ----------
    output, input : their positions in the graph's outputs and inputs; of one shape and type
    """

    output: int
    input: int


@runtime_checkable
class SeriesProgram(Protocol):
    """A program that does several runs in one submission."""

    def run_series(self, runs: Sequence[Sequence[SeriesInput]], carry: Carry | None = None) -> list[list[Array]]:
        """Return the outputs of each run; see `run_series`."""
        ...


def run_series(
    program: GraphProgram, runs: Sequence[Sequence[SeriesInput]], carry: Carry | None = None
) -> list[list[Array]]:
    """Run a program several times in order, with the bits of single runs.

    Parameters
    ----------
    runs : the inputs of each run, as of `GraphProgram.run`
    carry : an input that comes from the run before

    Returns
    -------
    The outputs of each run.

    Raises
    ------
    ShapeError : an input has another shape or dtype; the device may have made the runs before it
    """
    if isinstance(program, SeriesProgram) and len(runs) > 1:
        return program.run_series(runs, carry)
    return run_one_by_one(program, runs, carry)


def run_one_by_one(
    program: GraphProgram, runs: Sequence[Sequence[SeriesInput]], carry: Carry | None = None
) -> list[list[Array]]:
    """Do what `run_series` does, each run by itself."""
    results: list[list[Array]] = []
    for inputs in runs:
        arrays = [one.rows() if isinstance(one, PickedRows) else one for one in inputs]
        if carry is not None and results:
            arrays[carry.input] = results[-1][carry.output]
        results.append(program.run(arrays))
    return results
