"""Losses, optimisers, dropout and noise, and rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graph.op_cases.case import RNG, OpCase, ids, normal
from tests.graph.op_cases.elements import move
from tests.graph.op_cases.rows import share


def _chances(*shape: int) -> np.ndarray:
    return (0.05 + 0.9 * RNG.random(shape)).astype(np.float32)


def _loss(name: str, prediction: np.ndarray, target: np.ndarray, *weights: np.ndarray, **fields: Any) -> OpCase:
    return OpCase(op="loss", inputs=(prediction, target, *weights), attrs={"name": name, **fields})


def _weights(*shape: int) -> np.ndarray:
    return np.maximum(normal(*shape), 0)


_CLASSES = {"ignore_index": -100, "label_smoothing": 0.0}
_LOSSES = {
    "mse": _loss("mse", normal(5, 7), normal(5, 7)),
    "mse-weights": _loss("mse", normal(5, 7), normal(5, 7), _weights(5, 7)),
    "l1": _loss("l1", normal(7, 5), normal(7, 5)),
    "l1-weights-and-equals": _loss(
        "l1", np.array([[1, 2, -3]] * 7, np.float32), np.array([[1, 5, 0]] * 7, np.float32), _weights(7, 3)
    ),
    "huber": _loss("huber", 3 * normal(4, 3, 5), normal(4, 3, 5), _weights(4, 3, 5), delta=0.7),
    "bce": _loss("bce", 5 * normal(33, 3), _chances(33, 3), logits=True),
    "bce-chances": _loss("bce", _chances(7, 3), _chances(7, 3), _weights(7, 3), logits=False),
    "classes": _loss("cross_entropy", normal(17, 13), ids(17, 13), **_CLASSES),
    "classes-weights": _loss("cross_entropy", normal(17, 13), ids(17, 13), _weights(17), **_CLASSES),
    "classes-ignored": _loss(
        "cross_entropy", normal(5, 3), np.array([0, -100, 2, -100, 1], np.int32), **{**_CLASSES, "label_smoothing": 0.1}
    ),
    "classes-many": _loss("cross_entropy", 4 * normal(3, 1031), ids(3, 1031), **{**_CLASSES, "label_smoothing": 0.2}),
    "soft": _loss("cross_entropy", normal(5, 7), share(5, 7), **_CLASSES),
    "soft-smooth": _loss(
        "cross_entropy", normal(5, 7), share(5, 7, zeros=True), _weights(5), **{**_CLASSES, "label_smoothing": 0.3}
    ),
}

_OPTIMISERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "weight_decay": 0.1},
    "momentum": {"name": "momentum", "weight_decay": 0.0, "momentum": 0.9, "dampening": 0.1, "nesterov": False},
    "nesterov": {"name": "momentum", "weight_decay": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": True},
    "rmsprop": {"name": "rmsprop", "weight_decay": 0.0, "alpha": 0.9, "eps": 1e-8, "momentum": 0.0, "centered": False},
    "rmsprop-all": {
        "name": "rmsprop",
        "weight_decay": 0.1,
        "alpha": 0.9,
        "eps": 1e-6,
        "momentum": 0.5,
        "centered": True,
    },
    "rmsprop-velocity": {
        "name": "rmsprop",
        "weight_decay": 0.0,
        "alpha": 0.9,
        "eps": 1e-6,
        "momentum": 0.5,
        "centered": False,
    },
    "adam": {"name": "adam", "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8},
    "adamw": {"name": "adamw", "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8},
}


def _update(attrs: dict[str, Any], shape: tuple[int, ...], *, first: bool, apply: float = 1.0) -> OpCase:
    slots = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}.get(attrs["name"], 0)
    if attrs["name"] == "rmsprop":
        slots = 1 + attrs["centered"] + bool(attrs["momentum"])
    step = 1 if first else 4
    corrections = (float(first), 0.0)
    if attrs["name"] in ("adam", "adamw"):
        corrections = (1 / (1 - attrs["beta1"] ** step), 1 / np.sqrt(1 - attrs["beta2"] ** step))
    scalars = np.array([0.01, 0.5, *corrections, apply], np.float32)
    values = [np.abs(normal(*shape)) * (0 if first else 1) for _ in range(slots)]
    if attrs["name"] == "rmsprop" and attrs["centered"]:
        # A variance that is no difference of nearly equal numbers: float32 has no digits for that.
        values[:2] = values[0] + np.float32(not first) * np.float32(0.1), np.float32(0.1) * values[1]
    return OpCase(
        op="update", inputs=(normal(*shape), normal(*shape), *values, scalars), attrs={**attrs, "in_place": False}
    )


def _dropout(p: float, *shape: int, stream: int = 0xC0FFEE11) -> OpCase:
    key = np.array([0x9E3779B9, 7], np.uint32).view(np.int32)
    return OpCase(op="dropout", inputs=(normal(*shape), key), attrs={"p": p, "stream": stream})


def _noisy(*shape: int, stream: int = 0xC0FFEE11, first: int = 0) -> OpCase:
    key = np.array([0x9E3779B9, 7], np.uint32).view(np.int32)
    return OpCase(op="normal", inputs=(normal(*shape), key), attrs={"stream": stream, "first": first})


def _gumbel(rows: int, width: int, first: int, seed: int) -> OpCase:
    positions = np.arange(first, first + rows, dtype=np.int32)
    return OpCase(op="gumbel", inputs=(normal(rows, width), positions), attrs={"seed": seed})


TRAINING_CASES = {
    "gumbel": _gumbel(5, 67, 0, 3),
    "gumbel-narrow": _gumbel(9, 3, 1000, (7 << 32) + 0xFFFFFFFF),
    "gumbel-wide": _gumbel(3, 275, 0, 3),
    "gumbel-row": _gumbel(1, 160, 2**31 - 1, 0),
    "gumbel-nothing": _gumbel(0, 5, 0, 1),
    "gumbel-apart": OpCase(op="gumbel", inputs=(normal(3, 17), np.array([4, 0, 4], np.int32)), attrs={"seed": 2}),
    "normal": _noisy(5, 67),
    "normal-later": _noisy(3, 2, 17, stream=5, first=2**32 - 40),
    "normal-one": _noisy(1, first=3),
    "normal-nothing": _noisy(0, 5),
    "dropout": _dropout(0.3, 5, 67),
    "dropout-most": _dropout(0.9, 3, 2, 17, stream=5),
    "dropout-none": _dropout(0.0, 7),
    "dropout-all": _dropout(1.0, 3, 5),
    "dropout-nothing": _dropout(0.5, 0, 5),
    "dropout-nan": OpCase(
        op="dropout",
        inputs=(np.full((4, 9), np.nan, np.float32), np.array([1, -1], np.int32)),
        attrs={"p": 0.5, "stream": 1},
    ),
    **{f"loss-{name}": case for name, case in _LOSSES.items()},
    **{
        f"{name}-{'first' if first else 'later'}": _update(attrs, (5, 33), first=first)
        for name, attrs in _OPTIMISERS.items()
        for first in (True, False)
    },
    "update-not": _update(_OPTIMISERS["adamw"], (7,), first=False, apply=0.0),
    "sumsq": move("sumsq", (3, 5), (67,), (1, 1)),
    "sumsq-nothing": move("sumsq", (0, 5)),
    "sumsq-infinite": OpCase(op="sumsq", inputs=(normal(5), np.array([np.inf, 1], np.float32))),
    **{
        f"fake-{scheme}": OpCase(op="fake_quant", inputs=(normal(5, 67),), attrs={"scheme": scheme})
        for scheme in ("float32", "bfloat16", "float16", "int8:g32", "int4:g32", "uint4:g32", "int8:row", "float8_e4m3")
    },
}
