"""What `hostile_input.py` does with a damaged model: all that a user does next, as far as it lets us."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from volumetric.base.errors import VolumetricError
from volumetric.cli.inspect import overview
from volumetric.detect import detect_model
from volumetric.generate import load
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model

TINY = Path(__file__).parents[1] / "tests" / "fixtures" / "hf_tiny"
MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
TEXT = "Hello <s> wörld 12"


def use(source: Path, **options: Any) -> None:
    """Open a model, and go on to what a user does next as far as it lets us. Raises the first error."""
    model = open_model(str(source), guess=options.get("guess"))
    overview(model)
    if model.tokenizer is not None:
        ids = model.tokenizer.encode(TEXT)
        decoder = model.tokenizer.decoder()
        for id in (*ids, 5, 10**6):
            decoder.push(id)
        decoder.flush()
    if model.chat_template is not None:
        model.chat_template.render(MESSAGES)
    with load(source, device="reference", context=8, **options) as opened:
        first = opened.plan.values[opened.plan.inputs["input"]]
        calls: list[Callable[[], object]] = []
        if opened.bidirectional:
            calls.append(lambda: opened.embed([TEXT, ""]))
            if model.head is not None:
                calls += [lambda: opened.score([(TEXT, "12")]), lambda: opened.classify([TEXT])]
            if model.hidden is not None:
                calls.append(lambda: opened.fill_mask("Hello [MASK]"))
        elif first.dtype == "int32":
            calls.append(lambda: opened.generate([1, 2, 3], max_tokens=2))
        else:
            rows = np.zeros((2, *first.shape[1:]), np.float32)
            calls.append(lambda: opened.executable.forward(opened.executable.new_state(), rows, last_only=False))
        _try_all(calls)


def _try_all(calls: list[Callable[[], object]]) -> None:
    """Make all calls, and raise the first error of this package afterwards."""
    errors = []
    for call in calls:
        try:
            call()
        except VolumetricError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def use_file(home: Path) -> None:
    """Open the one file of a directory, and write it as the other formats."""
    (path,) = home.iterdir()
    other = home.with_name("written")
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir()
    _try_all(
        [lambda: use(path), lambda: convert_model(path, other / "m.gguf"), lambda: convert_model(path, other / "m")]
    )


def use_each(home: Path) -> None:
    """Open all files of a directory."""
    _try_all([lambda path=path: use(path) for path in sorted(home.iterdir())])


def use_directory(home: Path) -> None:
    """Open a directory, and write it as a GGUF file."""
    other = home.with_name("written.gguf")
    _try_all([lambda: use(home), lambda: convert_model(home, other)])


def use_guess(home: Path, guess: Any = True) -> None:
    """Take weights for what they look like."""
    _try_all([lambda: detect_model(home), lambda: use(home, guess=True), lambda: use(home, guess=guess)])


TOLD: dict[str, dict[str, Any]] = {
    "onnx_gru": {"linear_before_reset": 1},
    "mobilenet": {"input_shape": [3, 33, 32]},
    "mobilenet_timm": {"input_shape": [3, 33, 32]},
    "perceptron": {"activation": "tanh"},
    "gemma3": {"rope_theta": 1e6, "query_pre_attn_scalar": 16},
    "qwen3": {"rope_theta": 1e6},
    "phi3": {"num_attention_heads": 4, "rope_theta": 1e4},
}
"""What names and shapes of a fixture do not tell."""


def use_adapter(home: Path) -> None:
    """Run a model with an adapter, and merge it."""
    base, other = TINY / "llama", home.with_name("merged")
    calls: list[Callable[[], object]] = [lambda: convert_model(base, other, lora=[str(home)])]
    with load(base, device="reference", context=8, lora=[str(home)]) as model:
        calls.append(lambda: model.generate([1, 2, 3], max_tokens=2))
        _try_all(calls)


def use_session(home: Path) -> None:
    """Go on from a saved session."""
    with load(TINY / "gpt2", device="reference", context=16) as model:
        session = model.session(restore=home / "s.state")
        list(session.stream([1, 2], max_tokens=2))
