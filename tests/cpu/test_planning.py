"""One planner for rows and for graphs of fixed shape: what lives how long, what is overwritten, when threads meet."""

from __future__ import annotations

from dataclasses import replace

from tests.graph.op_cases import OP_CASES
from tests.graph.op_cases.case import case_graph
from tests.networks import tiny_llama
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.cpu.executable import CpuExecutable
from volumetric.devices.cpu.graph.build_steps import build_steps
from volumetric.devices.cpu.kernels.operations import ROWS
from volumetric.devices.cpu.placement import StoragePlacement, barriers
from volumetric.devices.cpu.step_builder import OperationStep, StepBuilder, TensorAddress
from volumetric.graph import GraphBuilder
from volumetric.graph.unroll_scans import unroll_scans
from volumetric.network import initialise
from volumetric.run import RunOptions, lower


def draft(*tensors: int) -> tuple[StepBuilder, list[int]]:
    """A draft with temporary tensors of these sizes."""
    made = StepBuilder(GraphBuilder().finish([]), ROWS)
    return made, [made.temporary(size) for size in tensors]


def in_turn(p: int, q: int, y: int) -> tuple[OperationStep, ...]:
    """Steps of which each reads what the one before it wrote."""
    pairs = ((), (p,)), ((p,), (q,)), ((q,), (y,))
    return tuple(OperationStep(name=f"step {i}", reads=reads, writes=writes) for i, (reads, writes) in enumerate(pairs))


def test_what_a_loop_touches_lives_through_it() -> None:
    made, (p, q, y) = draft(64, 64, 64)
    read = OperationStep(name="read", reads=(y,))
    made.steps = [*in_turn(p, q, y), read]
    assert StoragePlacement(made).arena == 128
    made.steps = [OperationStep(name="loop", body=in_turn(p, q, y)), read]
    assert StoragePlacement(made).arena == 192


def test_threads_meet_before_and_after_steps_that_may_not_run() -> None:
    made, (p, q, y, other) = draft(64, 64, 64, 64)
    write = OperationStep(name="write", writes=(other,))
    made.steps = [
        write,
        OperationStep(name="guard", reads=(other,), body=in_turn(p, q, y)),
        OperationStep(name="last", reads=(other,)),
    ]
    assert barriers(made.steps, StoragePlacement(made), made.sizes) == [True, True, True, True, False]


def test_a_result_takes_the_place_of_an_operand_that_is_done_with() -> None:
    made, (x, y) = draft(64, 64)
    steps = [OperationStep(name="write", writes=(x,)), OperationStep(name="over", reads=(x,), writes=(y,), over=(x,))]
    made.steps = [*steps, OperationStep(name="read", reads=(y,))]
    assert StoragePlacement(made).arena == 64
    made.steps = [*steps, OperationStep(name="read", reads=(x, y))]
    assert StoragePlacement(made).arena == 128


def test_shares_of_one_kind_need_no_meeting() -> None:
    made, (x, y) = draft(64, 64)
    first = OperationStep(name="first", writes=(x,), flat="rows", shared=(x,))
    second = OperationStep(name="second", reads=(x,), writes=(y,), flat="rows", shared=(x, y))
    made.steps = [first, second]
    assert barriers(made.steps, StoragePlacement(made), made.sizes) == [False, False]
    made.steps = [first, replace(second, flat="tail")]
    assert barriers(made.steps, StoragePlacement(made), made.sizes) == [True, False]


def test_steps_say_what_they_read_and_write() -> None:
    """Every tensor whose address a step has: an undeclared one would be overwritten under it."""
    rules = CpuDevice(threads=1).graphs().operations
    for name, case in OP_CASES.items():
        if case.op in rules:
            for step in build_steps(unroll_scans(case_graph(case))).steps:
                places = {value.tensor for value in step.arguments if isinstance(value, TensorAddress)}
                assert places <= {*step.reads, *step.writes}, name


def test_decoding_keeps_one_residual_stream() -> None:
    """Sums go where their operand was, and threads meet where a step reads what others wrote."""
    network = tiny_llama()
    executable = CpuDevice(threads=2).compile(lower(network), initialise(network, 3), RunOptions(context=64))
    assert isinstance(executable, CpuExecutable)
    program = executable._open().program
    table = program.table(("few", "few"))
    storages = [storage for storage in table.placement.storages.values() if storage.home == "arena"]
    assert max(len(storage.tensors) for storage in storages) >= 4
    meets = barriers(table.draft.steps, table.placement, table.draft.sizes)
    alone = [leaf.name for leaf, meet in zip(table.placement.leaves, meets, strict=True) if not meet]
    assert alone == ["angles", "gather", "feed"]  # of two values that are gathered, the first
