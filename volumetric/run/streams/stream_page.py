"""Streams show themselves in a page while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from volumetric.base._typing import Array
from volumetric.base.scope_pages import ScopePage, page_of


class HasPage:
    """Streams that a page of the scope runs, shows and changes."""

    def scope(
        self,
        rows: Array | Mapping[str, Array] | Callable[[int], Any] | str | None = None,
        *,
        rate: float | None = 10.0,
        running: bool = False,
        twin: bool = False,
        row: int | None = 0,
    ) -> ScopePage:
        """Return a page that runs a fork of these streams, tick by tick or row by row, and that can change it.

        These streams do not change, and no file does.

        Parameters
        ----------
        rows : arrays that loop, a function of the tick, ``"zeros"`` or ``"noise"``
        rate : ticks, or rows, a second; None: as many as possible
        running : whether it runs at once
        twin : whether an untouched twin runs beside it
        row : index of the stream to show; None: all together

        Raises
        ------
        SpecError, ShapeError : rows do not fit the inputs

        Examples
        --------
        >>> server = stream.scope("noise", running=True).show()  # doctest: +SKIP
        """
        return page_of("stream", self, rows=rows, rate=rate, running=running, twin=twin, row=row)
