"""Program: typed regions of a canvas, and edges between them, as one layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from volumetric._typing import Shape
from volumetric.errors import SpecError
from volumetric.graph.state import StateSpec, is_sequence
from volumetric.layers.base import LayerSpec, ParamSpec, expect_last, layer
from volumetric.layers.program import declared
from volumetric.layers.program.facts import Facts, facts_of
from volumetric.layers.program.ports import width_of
from volumetric.layers.scope import Scope


@layer("program")
class Program(LayerSpec):
    """A program, on rows ``[…, T, inputs]`` → ``[…, T, outputs]``; a row of them is all ports side by side.

    For each row: clocks say which regions fire (from signals of the row and meters of the step before); inputs put
    ``W x + b + code`` into theirs, where these fire; all edges of regions that fire, and whose conditions hold, read
    the canvas, or what regions are read through, as it is then; regions take what edges bring by their carriers, and
    meters their errors; regions with inner steps do so again. At last outputs hand out ``W LN(pool) + b``. A region
    that does not fire stays as it is. While training, what a diffusive region holds when it is asked gets noise of the
    level that a port tells, ``√ᾱ x₀ + √(1 - ᾱ) ε``.

    States are the canvas, counts of clocks, memories, slots, what edges with lags read, and meters. Resets forget
    them before a row.

    Attributes
    ----------
    program : canvas, edges, ports and meters; it has an input and an output, and its clocks look at what there is
    watched : behind the outputs a row has what `layers.program.watched` tells of it: how often each region and each
        edge computed, how strong regions are, and what meters read
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    program: declared.Program
    watched: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        from volumetric.layers.program.held import check_held
        from volumetric.layers.program.parameters import check_constants
        from volumetric.layers.program.timing import timing_of

        if not isinstance(self.program, declared.Program):
            raise SpecError(f"program: expected a Program, got {type(self.program).__name__}")
        for what, ports in (("takes in", self.program.inputs), ("hands out", self.program.outputs)):
            if not ports:
                name = 'In("region", dim)' if what == "takes in" else 'Out("region", dim)'
                raise SpecError(f"program: no port {what} anything", hint=f'ports={{"name": {name}}}')
        timing_of(self.facts)
        check_constants(self.facts)
        if not self.program.parity:  # the package tells what is broken, and goes on
            check_held(self.facts)

    @property
    def facts(self) -> Facts:
        """Regions, edges and ports as arrays."""
        return facts_of(self.program)

    def ports(self, which: Literal["inputs", "outputs"]) -> dict[str, tuple[int, int]]:
        """Return the columns of a row that each port has."""
        columns = self.facts.inputs if which == "inputs" else self.facts.outputs
        if which == "outputs" and self.watched:
            from volumetric.layers.program.watched import watched_columns

            columns = {**columns, **watched_columns(self.facts)}
        return {name: (of.start, of.stop) for name, of in columns.items()}

    def params(self) -> tuple[ParamSpec, ...]:
        from volumetric.layers.program.parameters import all_params

        return all_params(self.facts)

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        from volumetric.layers.program.timing import all_states

        if not is_sequence(*inputs):
            return ()
        return tuple(StateSpec(name=name, shape=shape, kind="fixed") for name, shape in all_states(self.facts).items())

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], sum(map(width_of, self.program.inputs.values())))
        return (*inputs[0][:-1], max(end for _, end in self.ports("outputs").values()))

    @property
    def draws(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (of the class where all layers do)
        """Whether training hides positions, or puts noise on diffusive regions."""
        from volumetric.layers.program.recipes import diffuses, hides

        return bool(hides(self.facts) or diffuses(self.facts))

    def emit(self, scope: Scope, x: int) -> int:
        from volumetric.layers.program.emit import emit_program  # which imports this module

        return emit_program(scope, self, x)
