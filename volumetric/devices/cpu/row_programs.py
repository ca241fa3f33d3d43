"""The step tables of a network, one per form of its products."""

from __future__ import annotations

from importlib import import_module
from itertools import groupby
from typing import get_args

from volumetric.devices.cpu.kernels.argmax import ARGMAX_ARGUMENTS, FEED_ARGUMENTS, MAXIMUM_BYTES
from volumetric.devices.cpu.placement import StoragePlacement
from volumetric.devices.cpu.row_settings import RowSettings
from volumetric.devices.cpu.rows import attention, elements, products
from volumetric.devices.cpu.rows.row_step_builder import DECODING, Form, Mode, RowStepBuilder, rule
from volumetric.devices.cpu.step_builder import OperationStep, TensorAddress
from volumetric.devices.cpu.step_table import StepTable, compile_steps
from volumetric.devices.cpu.subgraph_steps import SubgraphPrograms
from volumetric.graph.ops import Graph
from volumetric.network import INPUT, OUTPUT
from volumetric.run.graph.partition import Partition, Segment

_FAMILIES = (attention, elements, products)  # importing them fills `rule`
_RARE = {
    "experts": "experts",
    "recurrence": "recurrent",
    **dict.fromkeys(("slice", "grouped_norm", "causal_conv", "selective_scan"), "state_space"),
}
"""Operations of few networks → module of their rules, which fills `rule` when a network has one."""


class RowPrograms:
    """Step tables of a network.

    Attributes
    ----------
    vocabulary : ids below this have a row in every embedding
    chooses : whether tables can select the argmax token and feed it: the network reads only ids and inputs with a
        default, all of it runs on rows, and a product writes its output ``"output"`` directly
    """

    def __init__(self, settings: RowSettings, between: SubgraphPrograms) -> None:
        self.settings = settings
        self.cut: Partition = settings.cut
        self.graph: Graph = settings.graph
        self.between = between
        read = (step.attrs["spec"].num_embeddings for step in self.cut.plan.steps if step.op == "embedding")
        self.vocabulary: int = min(read, default=0)
        inputs = (self.cut.plan.values[i] for i in self.cut.plan.inputs.values())
        needed = [value.dtype for value in inputs if value.default is None]
        self.chooses: bool = needed == ["int32"] and settings.written is not None and not between.cores
        self._tables: dict[Mode, StepTable] = {}
        self._prepared = False

    def table(self, mode: Mode) -> StepTable:
        """The table of a mode, compiled on first use.

        Decoding follows nearly every prompt, so its operations are compiled with those of the first call: there is one
        wait for the compiler, reported as one, and never between two tokens.
        """
        if mode not in self._tables:
            modes = [one for one in dict.fromkeys((mode, DECODING)) if one not in self._tables]
            drafts = {one: self._build_steps(one) for one in modes}
            compile_steps(drafts.values())
            lent = [] if self.settings.written is None else [self.settings.written]
            lent += [self.settings.tokens] if self.chooses else []
            for one, draft in drafts.items():
                self._tables[one] = StepTable(
                    draft, StoragePlacement(draft, lent), apart=2 * self.chooses, ends=draft.ends
                )
        return self._tables[mode]

    def prepare(self) -> None:
        """Compile the operations of all modes, so that no later call waits for a compiler.

        A product before the tail has the form of the mode's first word, a product in the tail that of the second: three
        modes have every form of each.
        """
        if not self._prepared:
            compile_steps([self._build_steps((form, form)) for form in get_args(Form)])
            self._prepared = True

    def _build_steps(self, mode: Mode) -> RowStepBuilder:
        draft = RowStepBuilder(self.settings, mode)
        attention.angles(draft)
        gathered = False
        for at, part in enumerate(self.cut.segments):
            if part.tail and not gathered:
                elements.gather_tail_rows(draft)
                gathered = True
            if part.graph is not None:
                draft.steps.append(self._add_subgraph(at, part))
                draft.ends.append(len(draft.steps))
                continue
            for predicate, nodes in groupby(part.nodes, key=lambda node: node.predicate):
                first, before = len(draft.steps), len(draft.ends)
                for node in nodes:
                    if node.op in _RARE:
                        import_module(f"volumetric.devices.cpu.rows.{_RARE[node.op]}")
                    rule.append(draft, node)
                    draft.ends.append(len(draft.steps))
                if predicate is not None:
                    draft.add_predicate(first, predicate.tensor, predicate.column)
                    draft.ends[before:] = [first + 1] * (len(draft.ends) - before)
        if self.chooses:
            self._add_argmax(draft)
        return draft

    def _add_argmax(self, builder: RowStepBuilder) -> None:
        """Append the steps that select the argmax tokens and feed them."""
        settings, ids, out = self.settings, self.cut.inputs[INPUT], self.cut.outputs[OUTPUT]
        maxima, width = builder.temporary(MAXIMUM_BYTES * settings.threads), builder.width(out)
        builder.add(
            "likeliest", ARGMAX_ARGUMENTS, reads={"logits": out}, writes={"found": maxima}, tail=True, width=width
        )
        written = {"ids": ids, "tokens": TensorAddress(settings.tokens)}
        builder.add("feed", FEED_ARGUMENTS, reads={"found": maxima}, writes=written, tail=True, limit=self.vocabulary)

    def _add_subgraph(self, at: int, part: Segment) -> OperationStep:
        """Return the step of a segment that does not run on rows."""
        subgraph, values = self.between.cores[at], self.graph.values
        predicate = () if part.predicate is None else part.predicate[:1]
        return OperationStep(
            name="core",
            note=part.name,
            reads=(*values(part.inputs), *predicate),
            writes=values(part.outputs),
            tail=part.tail,
            host=lambda call: call.run(subgraph),
        )
