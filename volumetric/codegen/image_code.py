"""Windows of images as loops: convolutions and pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from volumetric.codegen.loop_writer import ArrayView, LoopWriter, index_text
from volumetric.codegen.operation_code import CODE, Attrs


@dataclass(frozen=True, slots=True)
class _Window:
    """Names inside the loops over windows and their taps.

    Attributes
    ----------
    place : index of the element within the channel of the image
    inside : condition that the element is within the image
    tap, window : indices of the tap and of the window
    """

    place: str
    inside: str
    tap: list[str]
    window: list[str]


@contextmanager
def _taps(write: LoopWriter, attrs: Attrs, sizes: Sequence[int], window: list[str]) -> Iterator[_Window]:
    """Write the loops over the taps of a window."""
    with write.loops(attrs["kernel"]) as tap:
        places: list[tuple[str, int]] = []
        conditions: list[str] = []
        steps = _strides(sizes)
        for axis, size in enumerate(sizes):
            stride, dilation, before = (attrs[name][axis] for name in ("stride", "dilation", "before"))
            text = index_text([(window[axis], stride), (tap[axis], dilation)], -before)
            places.append((f"({text})" if " " in text else text, steps[axis]))
            if before:
                conditions.append(f"{text} >= 0")
            if (attrs["counts"][axis] - 1) * stride + (attrs["kernel"][axis] - 1) * dilation - before >= size:
                conditions.append(f"{text} < {size}")
        place = index_text(places)
        yield _Window(place, write.both(conditions), tap, window)


def _element(view: ArrayView, lead: str, place: str) -> str:
    text = " + ".join(part for part in (lead, place) if part != "0") or "0"
    return f"{view.name}[{text}{f' + {view.offset}' if view.offset else ''}]"


def _strides(sizes: Sequence[int]) -> list[int]:
    steps, distance = [], 1
    for size in reversed(sizes):
        steps.insert(0, distance)
        distance *= size
    return steps


def _unfold(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    (samples, channels, *sizes), (_, _, windows) = x[0].shape, y[0].shape
    kernel, counts = attrs["kernel"], attrs["counts"]
    taps = _strides([*kernel, windows])[:-1]
    pixels = _strides([channels, *sizes])[0]
    with (
        write.loops([samples * channels]) as (c,),
        write.loops(counts) as window,
        _taps(write, attrs, sizes, window) as at,
    ):
        value = _element(x[0], index_text([(c, pixels)]), at.place)
        value = write.choose(at.inside, value, "0.0") if at.inside else value
        own = [(c, _strides([*kernel, windows])[0] * kernel[0])]
        target = y[0].at(*own, *zip(at.tap, taps, strict=True), *zip(window, _strides(counts), strict=True))
        write.set(target, value)


def _fold(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    (samples, channels, *sizes), (_, _, windows) = y[0].shape, x[0].shape
    kernel, counts = attrs["kernel"], attrs["counts"]
    taps = _strides([*kernel, windows])
    pixels = _strides([channels, *sizes])[0]
    with (
        write.loops([samples * channels]) as (c,),
        write.loops(counts) as window,
        _taps(write, attrs, sizes, window) as at,
    ):
        pairs = [*zip(at.tap, taps[:-1], strict=True), *zip(window, _strides(counts), strict=True)]
        source = x[0].at((c, taps[0] * kernel[0]), *pairs)
        _add(write, y[0], index_text([(c, pixels)]), at, source)


def _add(write: LoopWriter, image: ArrayView, lead: str, at: _Window, value: str) -> None:
    """Write the sum into an element of the image, if it is inside."""
    target = _element(image, lead, at.place)
    if at.inside:
        with write.condition(at.inside):
            write.set(target, f"{target} + {value}")
    else:
        write.set(target, f"{target} + {value}")


def _pool(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView], *, largest: bool) -> None:
    samples, channels, *sizes = x[0].shape
    counts = attrs["counts"]
    pixels, results = _strides([channels, *sizes])[0], _strides([channels, *counts])
    least = write.language.number(float("-inf")) if largest else "0.0"
    with write.loops([samples * channels]) as (c,), write.loops(counts) as window:
        best = write.let("best" if largest else "total", least)
        with _taps(write, attrs, sizes, window) as at:
            value = _element(x[0], index_text([(c, pixels)]), at.place)
            value = write.choose(at.inside, value, least) if at.inside else value
            write.set(best, write.word("max", best, value) if largest else f"{best} + {value}")
        write.set(y[0].at((c, results[0]), *zip(window, results[1:], strict=True)), best)


def _pool_spread(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    samples, channels, *sizes = y[0].shape
    counts = attrs["counts"]
    pixels, results = _strides([channels, *sizes])[0], _strides([channels, *counts])
    with (
        write.loops([samples * channels]) as (c,),
        write.loops(counts) as window,
        _taps(write, attrs, sizes, window) as at,
    ):
        source = x[0].at((c, results[0]), *zip(window, results[1:], strict=True))
        _add(write, y[0], index_text([(c, pixels)]), at, source)


CODE["unfold"] = _unfold
CODE["fold"] = _fold
CODE["pool_max"] = lambda write, x, attrs, y: _pool(write, x, attrs, y, largest=True)
CODE["pool_sum"] = lambda write, x, attrs, y: _pool(write, x, attrs, y, largest=False)
CODE["pool_spread"] = _pool_spread
