"""Small training problems by name: some generated, two real data sets from scikit-learn."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from volumetric.base import rng
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError, UnsupportedError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Samples and facts about them.

    Attributes
    ----------
    inputs : ``[samples, …]``
    targets : class ids ``[samples]``, or values ``[samples, outputs]``; of sequences ``[samples, T]``, or
        ``[samples, T, outputs]``
    classes : names of the classes, empty for values and for next-token targets
    shape : shape of a sample as an image, channels first, if it is an image
    vocabulary : number of different tokens, for token ids
    mask : weights of the loss's terms, or None
    features : names of the input columns of a table
    resets : for sequences: 1 if a sequence restarts at a row, uint8 ``[samples, T]``; None: only at the first row
    """

    inputs: Array
    targets: Array
    classes: tuple[str, ...] = ()
    shape: tuple[int, ...] = field(default=())
    vocabulary: int = 0
    mask: Array | None = None
    features: tuple[str, ...] = ()
    resets: Array | None = None

    @property
    def outputs(self) -> int:
        """Number of network outputs that the problem needs."""
        return len(self.classes) or self.vocabulary or self.targets.shape[-1]


def xor() -> Problem:
    """Exclusive or of two bits, which a network without a hidden layer cannot learn."""
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    return Problem(inputs=x, targets=np.array([[0], [1], [1], [0]], np.float32))


def parity(bits: int = 6) -> Problem:
    """Whether the number of ones is odd, for all words of `bits` bits."""
    if not 1 <= bits <= 16:
        raise SpecError(f"parity: bits must be in 1 … 16, got {bits}")
    words = (np.arange(2**bits)[:, None] >> np.arange(bits)) & 1
    return Problem(inputs=words.astype(np.float32), targets=words.sum(1) % 2, classes=("even", "odd"))


def spirals(samples: int = 600, arms: int = 3, noise: float = 0.05, seed: int = 0) -> Problem:
    """Points on arms that wind around each other; the arm is the class."""
    if samples < arms or arms < 2:
        raise SpecError(f"spirals: cannot place {samples} samples on {arms} arms")
    random = rng.generator(seed)
    arm = np.arange(samples) % arms
    radius = random.uniform(0.1, 1, samples)
    angle = 4 * radius + 2 * np.pi * arm / arms
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1) + noise * random.standard_normal(
        (samples, 2)
    )
    return Problem(inputs=points.astype(np.float32), targets=arm, classes=tuple(f"arm {i}" for i in range(arms)))


def waves(samples: int = 512, seed: int = 0) -> Problem:
    """A smooth function of four features, ``sin 2a + b·c − d/2``, to regress."""
    x = rng.generator(seed).uniform(-1, 1, (samples, 4)).astype(np.float32)
    y = np.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] - 0.5 * x[:, 3:]
    return Problem(inputs=x, targets=y.astype(np.float32))


def digits() -> Problem:
    """1797 handwritten digits of 8 × 8 pixels in 0 … 1 (Alpaydin & Kaynak 1998, from scikit-learn's files)."""
    bunch = _bundled("load_digits")
    images = (bunch["data"] / 16).astype(np.float32)
    return Problem(
        inputs=images, targets=bunch["target"].astype(np.int64), classes=tuple("0123456789"), shape=(1, 8, 8)
    )


def iris() -> Problem:
    """150 iris flowers by four measures, each with mean 0 and deviation 1 (Fisher 1936, from scikit-learn's files)."""
    bunch = _bundled("load_iris")
    x = bunch["data"]
    x = (x - x.mean(0)) / x.std(0)
    names = tuple(map(str, bunch["target_names"]))
    return Problem(inputs=x.astype(np.float32), targets=bunch["target"].astype(np.int64), classes=names)


def _bundled(loader: str) -> Mapping[str, Any]:
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError:
        raise UnsupportedError(
            "this problem needs scikit-learn, which is not installed", hint="pip install 'volumetric-engine[data]'"
        ) from None
    return getattr(datasets, loader)()


PROBLEMS: Final = MappingProxyType[str, Callable[..., Problem]](
    {make.__name__: make for make in (xor, parity, spirals, waves, digits, iris)}
)
"""Name → function that creates the problem."""
