"""Matrix products of groups, and sums of products by letters."""

from __future__ import annotations

from math import prod

import numpy as np

from volumetric.base.errors import ShapeError
from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.operator_table import operator


def matmul(call: NodeCall, a: int, b: int) -> int:
    """Emit NumPy's `matmul` of two tensors with 2 or more axes."""
    work = call.work
    *lead_a, m, k = work.shape(a)
    *lead_b, other, n = work.shape(b)
    if k != other:
        raise ShapeError(f"{call.label}: cannot multiply {list(work.shape(a))} by {list(work.shape(b))}")
    lead = np.broadcast_shapes(tuple(lead_a), tuple(lead_b))
    if prod(lead_b) == 1:  # one product of all rows
        rows = work.reshape(a, (1, prod(lead_a) * m, k))
        return work.reshape(work.gemm(rows, work.reshape(b, (1, k, n))), (*lead, m, n))
    if not _repeats(lead_a, lead):
        a, lead_a = call.spread(a, (*lead, m, k)), list(lead)
    if not _repeats(lead_b, lead):
        b, lead_b = call.spread(b, (*lead, k, n)), list(lead)
    groups = work.gemm(work.reshape(a, (prod(lead_a), m, k)), work.reshape(b, (prod(lead_b), k, n)), groups=prod(lead))
    return work.reshape(groups, (*lead, m, n))


def _repeats(own: list[int], whole: tuple[int, ...]) -> bool:
    """Whether groups of `own` sizes, repeated in turn, are those of `whole`."""
    while own and own[0] == 1:
        own = own[1:]
    return not own or tuple(own) == tuple(whole[len(whole) - len(own) :])


def multiply(call: NodeCall, a: OnnxValue, b: OnnxValue, x: int, y: int) -> tuple[int, tuple[int, ...]]:
    """Emit the product of the tensors `x` and `y` of two values, one of which may be a vector; return its shape."""
    work = call.work
    if not a.shape or not b.shape:
        raise ShapeError(f"{call.label}: a scalar has no matrix product")
    x = work.reshape(x, (1, *a.shape)) if len(a.shape) == 1 else x
    y = work.reshape(y, (*b.shape, 1)) if len(b.shape) == 1 else y
    product = matmul(call, x, y)
    *lead, m, n = work.shape(product)
    shape = (*lead, *((m,) if len(a.shape) > 1 else ()), *((n,) if len(b.shape) > 1 else ()))
    return product, tuple(shape)


@operator("MatMul")
def _matmul(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    product, shape = multiply(call, a, b, call.tensor(a), call.tensor(b))
    return call.result(product, a.dtype, shape)


@operator("Gemm")
def _gemm(call: NodeCall, a: OnnxValue, b: OnnxValue, c: OnnxValue | None = None) -> OnnxValue:
    work = call.work
    x, y = (work.reshape(call.tensor(v), (1, *v.shape)) for v in (a, b))
    alpha, beta = float(call.attribute("alpha", 1.0)), float(call.attribute("beta", 1.0))
    flags = {"trans_a": bool(call.attribute("transA", 0)), "trans_b": bool(call.attribute("transB", 0))}
    columns = b.shape[0] if flags["trans_b"] else b.shape[1]
    if c is not None and alpha == beta == 1 and c.shape == (columns,):
        product = work.gemm(x, y, call.tensor(c), **flags)
        return call.result(product, a.dtype, work.shape(product)[1:])
    product = work.affine(work.gemm(x, y, **flags), alpha)
    product = work.reshape(product, work.shape(product)[1:])
    if c is not None and beta:
        product = call.pair("add", product, work.affine(call.tensor(c), beta))
    return call.result(product, a.dtype)


@operator("Einsum")
def _einsum(call: NodeCall, *inputs: OnnxValue) -> OnnxValue:
    terms, result = _letters(call, [len(v.shape) for v in inputs])
    tensors = [_diagonal(call, call.tensor(v), term) for v, term in zip(inputs, terms, strict=True)]
    total, letters = tensors[0]
    for i, (tensor, term) in enumerate(tensors[1:], 2):
        needed = set(result).union(*(t for _, t in tensors[i:]))
        total, letters = _contract(call, (total, letters), (tensor, term), needed)
    total, letters = _summed(call, total, letters, set(result))
    total = call.work.permute(total, [letters.index(c) for c in result]) if result else total
    return call.result(total, inputs[0].dtype, call.work.shape(total) if result else ())


def _letters(call: NodeCall, ranks: list[int]) -> tuple[list[str], str]:
    """Return the letters of each input and of the result; digits stand for the axes of an ellipsis."""
    equation = str(call.attribute("equation", "")).replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(f"{call.label}: {equation!r} has {len(terms)} terms for {len(ranks)} inputs")
    widest = max(
        (rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True) if "..." in t), default=0
    )
    digits = "".join(chr(0x4E00 + i) for i in range(widest))
    terms = [
        t.replace("...", digits[widest - (rank - len(t.replace("...", ""))) :] if "..." in t else "")
        for t, rank in zip(terms, ranks, strict=True)
    ]
    if not arrow:
        whole = "".join(terms)
        result = digits + "".join(sorted(c for c in set(whole) if whole.count(c) == 1 and c not in digits))
    return terms, result.replace("...", digits)


def _diagonal(call: NodeCall, x: int, term: str) -> tuple[int, str]:
    """Keep the elements in which axes with the same letter have the same index."""
    work = call.work
    if not term:
        return x, ""
    for letter in set(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            size = work.shape(x)[first]
            x = call.move_axis(call.move_axis(x, second, 0), first + 1, 1)
            rest = work.shape(x)[2:]
            x = call.take(work.reshape(x, (size * size, *rest)), 0, np.arange(size) * (size + 1))
            term = letter + "".join(c for i, c in enumerate(term) if i not in (first, second))
    return x, term


def _summed(call: NodeCall, x: int, letters: str, needed: set[str]) -> tuple[int, str]:
    work = call.work
    axes = [i for i, c in enumerate(letters) if c not in needed]
    if axes:
        x = work.reduce(x, "sum", axes)
    letters = "".join(c for c in letters if c in needed)
    sizes = tuple(n for i, n in enumerate(work.shape(x)) if i not in axes)
    return work.reshape(x, sizes or (1,)), letters


def _contract(call: NodeCall, a: tuple[int, str], b: tuple[int, str], needed: set[str]) -> tuple[int, str]:
    """Emit one product of two terms: letters of both that are needed are groups, others are summed."""
    work = call.work
    x, left = _summed(call, *a, needed | set(b[1]))
    y, right = _summed(call, *b, needed | set(left))
    both = [c for c in left if c in right and c in needed]
    inner = [c for c in left if c in right and c not in needed]
    rows, columns = [c for c in left if c not in right], [c for c in right if c not in left]
    sizes = dict(zip(left, work.shape(x), strict=False)) | dict(zip(right, work.shape(y), strict=False))

    def arranged(tensor: int, letters: str, order: list[list[str]]) -> int:
        flat = [c for part in order for c in part]
        tensor = work.permute(tensor, [letters.index(c) for c in flat]) if flat else tensor
        return work.reshape(tensor, tuple(prod(sizes[c] for c in part) for part in order))

    product = work.gemm(arranged(x, left, [both, rows, inner]), arranged(y, right, [both, inner, columns]))
    letters = "".join((*both, *rows, *columns))
    return work.reshape(product, tuple(sizes[c] for c in letters) or (1,)), letters
