"""How a server samples where requests do not say it: as the model's files say, else at a temperature of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.generate.letters import ENDS, letters
from tests.serve.servers import Address, running
from volumetric.base.errors import SpecError
from volumetric.serve.serving import ServerSettings


def texts(address: Address, **fields: Any) -> list[str]:
    with address.client() as client:
        answer = client.completions.create(
            model="a", prompt="a", max_tokens=24, extra_body={"ignore_eos": True} | fields
        )
    return [choice.text for choice in answer.choices]


@pytest.mark.thorough
def test_texts_differ_where_nobody_says_anything_of_sampling():
    with running({"a": letters(np.zeros((9, 9), np.float32))}, temperature=ServerSettings().temperature) as address:
        assert len(set(texts(address, n=3))) == 3
        assert texts(address, n=2, seed=5) == texts(address, n=2, seed=5)
        assert texts(address, seed=5) != texts(address, seed=6)
        assert len(set(texts(address, n=3, temperature=0))) == 1
        with address.client() as client:
            assert "temperature=1.0 (server)" in client.models.retrieve("a").model_dump()["meta"]["sampling"]


@pytest.mark.thorough
def test_files_and_the_server_may_say_otherwise():
    recommended = letters(np.zeros((9, 9), np.float32), generation=replace(ENDS, do_sample=True, top_k=1))
    with running({"a": recommended}, temperature=1.0) as address:
        assert len(set(texts(address, n=3))) == 1  # the likeliest alone
    with running({"a": letters(np.zeros((9, 9), np.float32))}, temperature=0.0) as address:
        assert len(set(texts(address, n=3))) == 1


def test_a_temperature_that_is_none_is_refused():
    with pytest.raises(SpecError, match="temperature"):
        ServerSettings(temperature=-1.0)
