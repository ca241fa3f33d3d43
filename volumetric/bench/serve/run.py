"""Loads: so many clients at once, each with one request after the other, and rows of what they saw together."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from volumetric.bench.serve.client import Seen, Target, ask
from volumetric.bench.tables import render_table

_SYSTEM: Final = (
    "You answer questions of visitors of a botanical garden. Write plain sentences, no lists. Say so when you do not "
    "know something, and name no plant that is not in the garden. The garden is open from eight to six, in winter from "
    "nine to four; children pay nothing. North of the pond are the conifers, south of it the roses, in the glass house "
    "palms and orchids, and on the hill herbs that were used as medicine. Dogs must stay outside."
)
"""What all requests begin with: about a hundred tokens that a server need not compute twice."""
_PLANTS: Final = ("roses", "palms", "orchids", "cedars", "ferns", "sage", "mint", "pines", "lilies", "moss", "ivy")


def question(number: int) -> str:
    """Return a question like no other: about fifty tokens."""
    plant = _PLANTS[number % len(_PLANTS)]
    return (
        f"Visitor {number} has {15 + number % 47} minutes and comes with {1 + number % 13} children. Which way should "
        f"they take if they want to see {plant} above all, and what is there to tell about {plant} that a child likes?"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What clients ask for.

    Attributes
    ----------
    clients : how many at once
    requests : in all; at least one for each client
    tokens : of an answer
    fields : of the body, besides
    timeout : seconds for an answer
    """

    clients: int
    requests: int
    tokens: int = 64
    fields: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRow:
    """What the clients of one server saw; times in seconds.

    Attributes
    ----------
    url, clients : which server, and how many clients at once
    good, failed : whole answers, and others
    error : of one that failed
    requests, tokens : whole answers and their tokens in a second
    first50, first95, first99 : quantiles of the time from a request to its first text
    gap50, gap95, gap99, gap_most : of the time between pieces of text
    cached : share of the tokens of prompts that needed no computing
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


def measure_servers(targets: Sequence[Target], loads: Sequence[Load], *, repetitions: int = 1) -> Iterator[ServeRow]:
    """Yield a row for each load on each server: the servers take turns, after one request that warms them up.

    With `repetitions` the row is that of the run with the median of the tokens in a second.
    """
    number = 0
    for target in targets:
        asyncio.run(_run(target, Load(clients=1, requests=1, tokens=8), 0))
    for load in loads:
        runs: dict[Target, list[ServeRow]] = {target: [] for target in targets}
        for _ in range(repetitions):
            for target in targets:
                answers, seconds = asyncio.run(_run(target, load, number))
                runs[target].append(_row(target, load, answers, seconds))
            number += load.requests
        for server_runs in runs.values():
            yield sorted(server_runs, key=lambda row: row.tokens)[len(server_runs) // 2]


async def _run(target: Target, load: Load, first: int) -> tuple[list[Seen], float]:
    numbers = iter(range(first, first + max(load.requests, load.clients)))
    answers: list[Seen] = []

    async def work() -> None:
        for number in numbers:
            messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": question(number)}]
            body = {"model": "default", "messages": messages, "max_tokens": load.tokens, "seed": number}
            answers.append(await ask(target, body | {"temperature": 0} | dict(load.fields), load.timeout))

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(load.clients)))
    return answers, time.perf_counter() - began


def _row(target: Target, load: Load, answers: Sequence[Seen], seconds: float) -> ServeRow:
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
    """Return the median, and what 95 and 99 of a hundred are below."""
    if len(values) < 2:
        return (*values, *values, *values) if values else (0.0, 0.0, 0.0)  # pyright: ignore[reportReturnType]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]


_HEAD = (
    "server | clients | requests/s | tokens/s | first token ms p50 / p95 / p99 "
    "| between pieces ms p50 / p95 / p99 / most | prompt reused | failed"
)


def render_serve(rows: Sequence[ServeRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
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
