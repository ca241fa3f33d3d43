"""Program: typed regions of a canvas, and edges between them, as one layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_spec import LayerSpec, ParamSpec, expect_last, layer
from volumetric.program.layer import program_declaration
from volumetric.program.layer.ports import width_of
from volumetric.program.layer.program_facts import Facts, facts_of


@layer("program")
class Program(LayerSpec):
    """Typed regions of a canvas and edges between them, on rows ``[…, T, inputs]`` → ``[…, T, outputs]``.

    ::

        fires       = clock of each region, from signals of the row and meters of the step before
        x[region]   ← W row + b + code                   inputs, where their region fires; or on top of what is there
        a_e         = rule_e(x[writes], rows of reads)   all edges of regions that fire, from the same x
        x′          = Σ_add w a / Σ_add w + Σ_gate σ(g) a   onto x in states and memories; the last edge that replaces
        x[region]   ← carrier(x, x′)                     filters, memories, denoisers; meters take the errors
        y           = W LN(pool) + b                     outputs, from the new x

    A row of input or output is the concatenation of all ports. The region that an edge writes attends to the region
    that it reads, by one of sixteen rules. A row works in three steps. Inputs write to their regions. Every edge that
    fires, and whose condition holds, reads the canvas as it is then (or the slots of regions). Outputs return the new
    content of regions. A region that does not fire keeps its content. So a signal crosses one edge per row, or as many
    as a region with ``inner(…, n)`` takes.

    The code of a position is the sinusoid of its place, frame first, and learned vectors of its region, its family and
    the logarithm of its period. The state of a sequence is the canvas, counts of clocks, memories, slots, rows for
    edges with lags, and meters. A reset clears it before a row. Clocks have no gradient: a region learns in the rows in
    which it fires. An output on a memory reads the memory's rows. In training, normal noise is added to diffusive
    regions with a `Level` port before edges read them: ``√ᾱ x₀ + √(1 − ᾱ) ε``, with ᾱ from the port.

    Clocks are those of layers (docs/clocked.md#clocks), with three additions: meters as ``region.kind``, signals, and
    ``inner(clock, n)``, by which a region computes n more times in a step.

    Attributes
    ----------
    program : canvas, edges, ports and meters. It has an input and an output, and its clocks refer only to existing
        names
    watched : the outputs also have the columns of `layers.program.watched`: the number of computations of each region
        and each edge, the strength of regions, and the values of meters
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    program: program_declaration.Program
    watched: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        from volumetric.program.layer.constraint_checks import check_constraints
        from volumetric.program.layer.program_params import check_constants
        from volumetric.program.layer.timing import timing_of

        if not isinstance(self.program, program_declaration.Program):
            raise SpecError(f"program: expected a Program, got {type(self.program).__name__}")
        for what, ports in (("input", self.program.inputs), ("output", self.program.outputs)):
            if not ports:
                name = 'In("region", dim)' if what == "input" else 'Out("region", dim)'
                raise SpecError(f"program: the program has no {what} port", hint=f'ports={{"name": {name}}}')
        timing_of(self.facts)
        check_constants(self.facts)
        if not self.program.parity:  # the package only reports violations
            check_constraints(self.facts)

    @property
    def facts(self) -> Facts:
        """Regions, edges and ports as arrays."""
        return facts_of(self.program)

    def ports(self, which: Literal["inputs", "outputs"]) -> dict[str, tuple[int, int]]:
        """Return the columns of each port in a row."""
        columns = self.facts.inputs if which == "inputs" else self.facts.outputs
        if which == "outputs" and self.watched:
            from volumetric.program.layer.watch_outputs import watched_columns

            columns = {**columns, **watched_columns(self.facts)}
        return {name: (of.start, of.stop) for name, of in columns.items()}

    def params(self) -> tuple[ParamSpec, ...]:
        from volumetric.program.layer.program_params import all_params

        return all_params(self.facts)

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        from volumetric.program.layer.timing import all_states

        if not is_sequence(*inputs):
            return ()
        return tuple(StateSpec(name=name, shape=shape, kind="fixed") for name, shape in all_states(self.facts).items())

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], sum(map(width_of, self.program.inputs.values())))
        return (*inputs[0][:-1], max(end for _, end in self.ports("outputs").values()))

    @property
    def draws(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (of the class where all layers do)
        """Whether training hides positions, or adds noise to diffusive regions."""
        from volumetric.program.layer.recipes import diffusing_regions, hiding_regions

        return bool(hiding_regions(self.facts) or diffusing_regions(self.facts))

    def emit(self, scope: Scope, x: int) -> int:
        from volumetric.program.layer.emit_program import emit_program  # emit imports this module

        return emit_program(scope, self, x)
