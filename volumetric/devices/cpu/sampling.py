"""Sampling on the thread pool: the rows of a batch are divided; a single row stays on the calling thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.cpu.arena import address_of, aligned_zeros
from volumetric.devices.cpu.compile_operations import compile_operations
from volumetric.devices.cpu.cpu_count import default_threads
from volumetric.devices.cpu.kernels.run_table import run_single_threaded
from volumetric.devices.cpu.kernels.sampling.draw import (
    COUNT_WORD,
    DRAWING,
    NEXT_WORD,
    REQUESTS_WORD,
    SCRATCH_BYTES_WORD,
    SCRATCH_WORD,
    draw_rows,
)
from volumetric.devices.cpu.kernels.sampling.row_scratch import scratch_bytes
from volumetric.devices.cpu.kernels.step_words import CONTROL_WORDS, OPERATION_WORD, STEP_WORDS
from volumetric.devices.cpu.thread_control import ThreadController
from volumetric.devices.cpu.thread_pool import THREAD_POOL

_EACH = 8
"""Minimum rows per thread: 200 µs of work, which is worth waking it."""


class CpuSampler:
    """Processes requests to the sampling kernel; thread-safe, one call at a time.

    Results do not depend on which thread draws a row: each is drawn by one thread, from its own numbers alone.

    Parameters
    ----------
    threads : maximum number; default: the physical cores
    """

    def __init__(self, threads: int | None = None) -> None:
        self._limit = threads
        self._turn = threading.Lock()
        self._control: NDArray[np.int64] = np.zeros(CONTROL_WORDS, np.int64)
        self._control_address = address_of(self._control)
        self._scratch: NDArray[np.uint8] = np.zeros(0, np.uint8)

    @cached_property
    def _table(self) -> int:
        """Address of a table of one step, built once per process."""
        compile_operations([(draw_rows.__name__, ())], DRAWING)
        self._words: NDArray[np.int64] = np.zeros(STEP_WORDS, np.int64)
        self._words[OPERATION_WORD] = DRAWING.address(draw_rows.__name__)
        return address_of(self._words)

    def prepare(self) -> None:
        """Compile the kernel, or load it from the cache, if not yet done."""
        with self._turn:
            _ = self._table

    def forget(self) -> None:
        """Reset in a forked child, where the lock may never be released."""
        self._turn = threading.Lock()

    @cached_property
    def _controller(self) -> ThreadController:
        return ThreadController(self._limit or default_threads())

    def draw(self, requests: Sequence[int], size: int) -> None:
        """Process requests.

        Parameters
        ----------
        requests : addresses, see ``volumetric.devices.cpu.kernels.sampling.row_scratch.WORDS``
        size : logits of the longest row
        """
        addresses = np.array(requests, np.int64)
        with self._turn:
            kind = str(len(requests).bit_length())
            most = max(1, len(requests) // _EACH)
            threads = min(self._controller.threads_for(kind), most)
            each = scratch_bytes(size)
            if self._scratch.size < each * threads:
                self._scratch = aligned_zeros(each * threads)
                self._control[SCRATCH_WORD] = address_of(self._scratch)
            self._control[REQUESTS_WORD] = address_of(addresses)
            self._control[COUNT_WORD] = len(requests)
            self._control[NEXT_WORD] = 0
            self._control[SCRATCH_BYTES_WORD] = each
            began = time.perf_counter()
            if threads == 1:
                run_single_threaded(self._table, 1, self._control_address, 1)
            else:
                THREAD_POOL.run(self._table, 1, self._control_address, threads)
            if most > 1:
                self._controller.record_call((time.perf_counter() - began) / len(requests), kind)


SAMPLING = CpuSampler()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SAMPLING.forget)
