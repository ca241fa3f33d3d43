"""Problems: what clients are told of an error, and what the log alone is."""

from __future__ import annotations

import logging
from typing import Any

import openai
import pytest

from tests.generate.letters import letters
from tests.serve.servers import running
from volumetric.base.errors import CheckpointError
from volumetric.serve.problem import without_directories


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/srv/my models/x/tokenizer.json: damaged: a/b c", "tokenizer.json: damaged: a/b c"),
        ("models/x/tokenizer.json: damaged: a and/or b", "tokenizer.json: damaged: a and/or b"),
        ("C:\\srv\\my models\\x.gguf: cut short", "x.gguf: cut short"),
        ("../x/y.json is no JSON", "y.json is no JSON"),
        ("it failed: [Errno 2] No such file: '/data/a b/x.json'", "it failed: [Errno 2] No such file: 'x.json'"),
        ("cannot read ~/x/y.json, 3 / 4", "cannot read y.json, 3 / 4"),
        ("tensor 'a/b/c' is 1/2 of it; 3 tokens/s", "tensor 'a/b/c' is 1/2 of it; 3 tokens/s"),
        ("see https://example.com/a/b", "see https://example.com/a/b"),
    ],
)
def test_names_of_directories_are_left_out_of_a_text(text: str, told: str):
    assert without_directories(text) == told


@pytest.mark.thorough
@pytest.mark.parametrize("error", ["checkpoint", "unforeseen"])
def test_clients_are_told_the_cause_and_the_log_where(
    error: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    model, where = letters(), "/srv/my models/secret/tokenizer.json"
    faults = {"checkpoint": CheckpointError(f"{where}: damaged tokenizer"), "unforeseen": OSError(where)}

    def failing(*_: Any, **__: Any) -> list[int]:
        raise faults[error]

    monkeypatch.setattr(type(model.tokenizer), "encode", failing)
    with (
        running({"letters": model}) as address,
        address.client() as client,
        caplog.at_level(logging.ERROR),
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.completions.create(model="letters", prompt="ab")
    told = {
        "checkpoint": ("tokenizer.json: damaged tokenizer", "model_error"),
        "unforeseen": ("the server failed; see its log for the reason", "internal_error"),
    }
    assert caught.value.body is not None
    assert (caught.value.body["message"], caught.value.code) == told[error]  # pyright: ignore[reportIndexIssue]  (JSON)
    [record] = caplog.records
    assert where in record.getMessage()
    assert record.exc_info is not None
