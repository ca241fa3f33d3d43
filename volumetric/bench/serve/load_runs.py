"""Loads: concurrent clients that send one request after the other, and a row of measurements for each load."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from volumetric.bench.bench_tables import render_table
from volumetric.bench.serve.client import ClientAnswer, ServerTarget, ask

_SYSTEM: Final = (
    "You answer questions of visitors of a botanical garden. Write plain sentences, no lists. Say so when you do not "
    "know something, and name no plant that is not in the garden. The garden is open from eight to six, in winter from "
    "nine to four; children pay nothing. North of the pond are the conifers, south of it the roses, in the glass house "
    "palms and orchids, and on the hill herbs that were used as medicine. Dogs must stay outside."
)
"""Common prefix of all requests: about a hundred tokens that a server can cache."""
_PLANTS: Final = ("roses", "palms", "orchids", "cedars", "ferns", "sage", "mint", "pines", "lilies", "moss", "ivy")


def question(number: int) -> str:
    """Return a unique question of about fifty tokens."""
    plant = _PLANTS[number % len(_PLANTS)]
    return (
        f"Visitor {number} has {15 + number % 47} minutes and comes with {1 + number % 13} children. Which way should "
        f"they take if they want to see {plant} above all, and what is there to tell about {plant} that a child likes?"
    )


def messages_of(number: int) -> list[dict[str, str]]:
    """Return the conversation of a request: the common prefix, and a question of its own."""
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": question(number)}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of a server.

    Attributes
    ----------
    clients : number of concurrent clients
    requests : number of all requests; at least one for each client
    tokens : most tokens of an answer
    fields : further fields of the request body
    timeout : most seconds for an answer
    """

    clients: int
    requests: int
    tokens: int = 64
    fields: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRow:
    """Measurements of one load on one server; times in seconds.

    Attributes
    ----------
    url, clients : the server, and the number of concurrent clients
    good, failed : numbers of complete answers, and of failed ones
    error : message of a failed one
    requests, tokens : complete answers and their tokens per second
    first50, first95, first99 : quantiles of the time from a request to its first text
    gap50, gap95, gap99, gap_most : quantiles and maximum of the time between chunks of text
    cached : share of prompt tokens that were cached
    """

    url: str
    clients: int
    good: int
    failed: int
    error: str
    requests: float
    tokens: float
    first50: float
    first95: float
    first99: float
    gap50: float
    gap95: float
    gap99: float
    gap_most: float
    cached: float


def measure_servers(
    targets: Sequence[ServerTarget], loads: Sequence[Load], *, repetitions: int = 1
) -> Iterator[ServeRow]:
    """Yield a row for each load on each server: the servers take turns, after one warm-up request.

    With `repetitions` the row is that of the run with the median tokens per second.
    """
    number = 0
    for target in targets:
        asyncio.run(_run(target, Load(clients=1, requests=1, tokens=8), 0))
    for load in loads:
        runs: dict[ServerTarget, list[ServeRow]] = {target: [] for target in targets}
        for _ in range(repetitions):
            for target in targets:
                answers, seconds = asyncio.run(_run(target, load, number))
                runs[target].append(_row(target, load, answers, seconds))
            number += load.requests
        for server_runs in runs.values():
            yield sorted(server_runs, key=lambda row: row.tokens)[len(server_runs) // 2]


async def _run(target: ServerTarget, load: Load, first: int) -> tuple[list[ClientAnswer], float]:
    numbers = iter(range(first, first + max(load.requests, load.clients)))
    answers: list[ClientAnswer] = []

    async def work() -> None:
        for number in numbers:
            body = {"model": "default", "messages": messages_of(number), "max_tokens": load.tokens, "seed": number}
            answers.append(await ask(target, body | {"temperature": 0} | dict(load.fields), load.timeout))

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(load.clients)))
    return answers, time.perf_counter() - began


def _row(target: ServerTarget, load: Load, answers: Sequence[ClientAnswer], seconds: float) -> ServeRow:
    good = [one for one in answers if not one.error]
    first = _quantiles([one.first for one in good])
    gaps = [gap for one in good for gap in one.gaps]
    between = _quantiles(gaps)
    prompts = sum(one.prompt_tokens for one in good)
    return ServeRow(
        url=target.url,
        clients=load.clients,
        good=len(good),
        failed=len(answers) - len(good),
        error=next((one.error for one in answers if one.error), ""),
        requests=len(good) / seconds,
        tokens=sum(one.tokens for one in good) / seconds,
        first50=first[0],
        first95=first[1],
        first99=first[2],
        gap50=between[0],
        gap95=between[1],
        gap99=between[2],
        gap_most=max(gaps, default=0.0),
        cached=sum(one.cached_tokens for one in good) / prompts if prompts else 0.0,
    )


def _quantiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, and the 95 % and 99 % quantiles."""
    if len(values) < 2:
        return (*values, *values, *values) if values else (0.0, 0.0, 0.0)  # pyright: ignore[reportReturnType]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]


_HEAD = (
    "server | clients | requests/s | tokens/s | first token ms p50 / p95 / p99 "
    "| between chunks ms p50 / p95 / p99 / max | prompt cached | failed"
)


def render_serve(rows: Sequence[ServeRow], form: str) -> str:
    """Format `rows`, with a final newline. Raises `SpecError` for an unknown format."""
    cells = [
        [
            row.url,
            str(row.clients),
            f"{row.requests:.2f}",
            f"{row.tokens:,.1f}",
            _times(row.first50, row.first95, row.first99),
            _times(row.gap50, row.gap95, row.gap99, row.gap_most),
            f"{row.cached:.0%}",
            str(row.failed),
        ]
        for row in rows
    ]
    return render_table([asdict(row) for row in rows], _HEAD, cells, form, left=1)


def _times(*seconds: float) -> str:
    return " / ".join(f"{1000 * one:,.0f}" if one >= 0.1 else f"{1000 * one:.1f}" for one in seconds)
