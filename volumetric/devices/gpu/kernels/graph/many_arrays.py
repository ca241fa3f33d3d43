"""Steps of optimisers and sums of squares over several arrays in one launch.

Weights of a small network are so small that a launch for each would take longer than the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import prod

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.dispatch import Caps, Constant, ceil_div
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    elements_per_invocation,
    launch,
    result,
    scratch,
    source,
    workgroup_size,
)
from volumetric.devices.gpu.kernels.graph.reduce import sum_rows
from volumetric.devices.gpu.kernels.graph.training import optimiser_fields
from volumetric.formula.optimisers import form_of
from volumetric.graph.strides import pad_to

MOST_ARRAYS = 8
"""Arrays of a launch at most; fewer if the device binds fewer buffers."""
_BESIDE = 3
"""Buffers of a launch besides those of arrays: scalars in two parts, and sums."""
_CHUNKS = 1024
_PER_INVOCATION = 16


def update_many(request: LoweringRequest) -> LoweredNode:
    """One step of an optimiser for each of several arrays, in place.

    Inputs: parameter, gradient and slots of each array, then the scalars, in one part or two; see ``update``.
    """
    arrays, scalars, caps = _arrays(request), _scalars(request), request.caps
    launches: list[KernelLaunch] = []
    size = workgroup_size(caps)
    each = elements_per_invocation(max(prod(shape) for _, shape in arrays), caps)
    for some in _launches(arrays, _buffers(request), caps):
        sizes = [prod(shape) for _, shape in some]
        ends = list(accumulate(ceil_div(count, size * each) for count in sizes))
        launches.append(
            launch(
                "update_many",
                ends[-1],
                {**_named(some, _buffers(request)), **scalars},
                _dims(sizes, ends),
                constants={
                    "ARRAYS": len(some),
                    "EACH": each,
                    "DIVIDED": len(scalars) > 1,
                    **optimiser_fields(request.attrs),
                },
                preludes=(f"graph/steps/{len(some)} {form_of(request.attrs)}",),
                workgroup=size,
            )
        )
    return LoweredNode(launches=tuple(launches))


def update_squares(request: LoweringRequest) -> LoweredNode:
    """Sum of the squares of the parameters that `update_many` would compute, which are not written."""
    arrays, buffers, scalars = _arrays(request), _buffers(request), _scalars(request)
    return _sum_of_squares(
        arrays,
        buffers,
        request.caps,
        lambda count: f"graph/trials/{count} {form_of(request.attrs)}",
        constants={"DIVIDED": len(scalars) > 1, **optimiser_fields(request.attrs)},
        more=scalars,
    )


def sumsq(request: LoweringRequest) -> LoweredNode:
    """Sum of the squares of all tensors."""
    arrays = list(enumerate(request.inputs))
    return _sum_of_squares(arrays, 1, request.caps, lambda count: f"graph/values/{count}")


def _sum_of_squares(
    arrays: Sequence[tuple[int, Shape]],
    buffers: int,
    caps: Caps,
    prelude: Callable[[int], str],
    *,
    constants: Mapping[str, Constant] | None = None,
    more: Mapping[str, BufferRef] | None = None,
) -> LoweredNode:
    """Sum squares in chunks, then the sums of chunks.

    Parameters
    ----------
    arrays : first input and shape of each
    buffers : number of inputs of an array
    prelude : number of arrays of a launch → the prelude that computes what is squared
    constants, more : constants and buffers of the prelude
    """
    size = workgroup_size(caps)
    total = sum(prod(shape) for _, shape in arrays)
    chunk = max(ceil_div(total, _CHUNKS), size * _PER_INVOCATION)
    divided = _launches(arrays, buffers, caps)
    alone = len(divided) == 1 and total <= chunk
    launches: list[KernelLaunch] = []
    first = 0
    for some in divided:
        sizes = [prod(shape) for _, shape in some]
        ends = list(accumulate(max(ceil_div(count, chunk), 1) for count in sizes))
        launches.append(
            launch(
                "squares_of_many",
                1 if alone else ends[-1],
                {**_named(some, buffers), "y": result() if alone else scratch(0), **(more or {})},
                [*_dims(sizes, ends), chunk, first],
                constants={"ARRAYS": len(some), "ALONE": alone, **(constants or {})},
                preludes=(prelude(len(some)),),
                workgroup=size,
            )
        )
        first += ends[-1]
    if alone:
        return LoweredNode(launches=tuple(launches))
    launches.append(sum_rows(first, 1, caps, scratch(0), result()))
    return LoweredNode(launches=tuple(launches), scratch=(4 * first,))


def _arrays(request: LoweringRequest) -> list[tuple[int, Shape]]:
    """Return the first input of each array, and its shape."""
    step = _buffers(request)
    return [(at, request.inputs[at]) for at in range(0, len(request.inputs) - len(_scalars(request)), step)]


def _scalars(request: LoweringRequest) -> dict[str, BufferRef]:
    """Return the buffers of the scalars: the last input, or the last two."""
    last = len(request.inputs) - 1
    if request.inputs[last] == (1,) and "buffers" in request.attrs:
        return {"scalars": source(last - 1), "written": source(last)}
    return {"scalars": source(last)}


def _buffers(request: LoweringRequest) -> int:
    """Return the buffers of an array; by default there is only one array."""
    return request.attrs.get("buffers", len(request.inputs) - 1)


def _launches(arrays: Sequence[tuple[int, Shape]], buffers: int, caps: Caps) -> list[Sequence[tuple[int, Shape]]]:
    """Divide arrays of `buffers` buffers each into those of one launch."""
    most = max(1, min(MOST_ARRAYS, (caps.max_storage_buffers - _BESIDE) // buffers))
    return [arrays[at : at + most] for at in range(0, len(arrays), most)]


def _named(arrays: Sequence[tuple[int, Shape]], buffers: int) -> dict[str, BufferRef]:
    """Return the buffers of arrays by the names in preludes."""
    names = ["param", "grad", *(f"slot_{i}" for i in range(buffers - 2))]
    return {
        f"{name}_of_{number}": source(at + place)
        for number, (at, _) in enumerate(arrays)
        for place, name in enumerate(names[:buffers])
    }


def _dims(sizes: Sequence[int], ends: Sequence[int]) -> list[int | float]:
    return [*pad_to(list(sizes), MOST_ARRAYS), *pad_to(list(ends), MOST_ARRAYS, ends[-1])]
