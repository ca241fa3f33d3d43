"""Memory whose addresses go into step tables: one large block for weights, aligned arrays for everything else."""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from volumetric.devices.cpu.kernels.step_words import CONTROL_WORDS, SCRATCH_BYTES_WORD, SCRATCH_WORD

_HUGE = 2 << 20
_NUMPY_HUGE = 4 << 20  # size from which NumPy requests huge pages, too
_APART = 128 << 10  # size from which a separate mapping pays; a quarter of a GiB holds 2,000 of them


class Arena:
    """One anonymous mapping on huge pages, allocated from front to back.

    Weights in order of use, one after the other on pages of 2 MiB, are read 10-20 % faster than on 4 KiB pages. Memory
    is committed when it is first written.

    Parameters
    ----------
    size : total bytes of all allocations
    """

    def __init__(self, size: int) -> None:
        self._bytes = np.frombuffer(_map_memory(size + _HUGE, huge=True), np.uint8)
        self._next = self._bytes.ctypes.data + -self._bytes.ctypes.data % _HUGE
        self._end = self._bytes.ctypes.data + self._bytes.size
        self.used: int = 0

    def allocate(self, size: int) -> int:
        """Return the address of `size` new bytes, a multiple of 64."""
        size = -(-size // 64) * 64
        address = self._next
        if address + size > self._end:
            raise MemoryError(f"arena of {self._bytes.size} bytes is full")
        self._next += size
        self.used += size
        return address


def _map_memory(size: int, *, huge: bool) -> mmap.mmap:
    # Private: advice alone brings huge pages to private memory; for shared memory they are mostly disabled.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        mapping = mmap.mmap(-1, size, **private)
    except OSError as error:
        raise MemoryError(f"cannot map {size} bytes: {error.strerror}") from error
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def off_heap_zeros(size: int) -> NDArray[np.uint8]:
    """Return `size` zero bytes as `aligned_zeros`, outside the heap unless small: for memory that may live long.

    They return to the system when unreferenced. Heap memory often does not: other allocations pin it, and after freeing
    large blocks glibc serves blocks of up to 32 MiB from the heap.
    """
    if size < _APART:
        return aligned_zeros(size)
    return np.frombuffer(_map_memory(size, huge=size >= _NUMPY_HUGE), np.uint8)


class CallScratch:
    """Memory that every call of some programs may overwrite, as they take turns: values, and a block per thread.

    Attributes
    ----------
    arena : memory of values; replaced by a larger array when it grows
    words : a control block, which points to the threads' blocks
    control : its address
    user : the owner whose layout the memory has; None once another has laid it out
    """

    def __init__(self) -> None:
        self.user: object = None
        self.arena: NDArray[np.uint8] = aligned_zeros(64)
        self._words = np.zeros(CONTROL_WORDS, np.int64)
        self.words: memoryview[int] = memoryview(self._words.data)
        self.control: int = address_of(self._words)
        self._blocks: NDArray[np.uint8] = np.zeros(0, np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.arena.nbytes + self._blocks.nbytes

    def reserve(self, size: int, *, each: int, threads: int) -> None:
        """Make room for values of `size` bytes, and for `each` bytes per thread. Growth discards the contents."""
        if self.arena.nbytes < size:
            self.arena = aligned_zeros(size)
        each = max(-(-each // 4096) * 4096 + 64, self.words[SCRATCH_BYTES_WORD])
        if self._blocks.nbytes < each * threads:
            self._blocks = aligned_zeros(each * threads)
            self.words[SCRATCH_WORD], self.words[SCRATCH_BYTES_WORD] = address_of(self._blocks), each


def aligned_zeros(size: int) -> NDArray[np.uint8]:
    """`size` zero bytes whose address is a multiple of 64."""
    raw = np.zeros(size + 64, np.uint8)
    skew = -raw.ctypes.data % 64
    return raw[skew : skew + size]


def address_of(array: NDArray[np.generic]) -> int:
    """Address of an array's first element."""
    return array.ctypes.data


def aligned_array(shape: tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
    """Return zeros whose first element is at a multiple of 64 bytes."""
    size = prod(shape) * np.dtype(kind).itemsize
    return aligned_zeros(max(size, 1))[:size].view(np.dtype(kind)).reshape(shape)
