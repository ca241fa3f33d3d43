"""A client of the server that a file of tests runs, by its fixture `address`."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.serve.servers import Address


@pytest.fixture(scope="module")
def client(address: Address) -> Iterator[openai.OpenAI]:
    with address.client() as client:
        yield client
