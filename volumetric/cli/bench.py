"""The command ``bench``: rows in the style of llama-bench."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from volumetric import __version__
from volumetric.base.errors import SpecError
from volumetric.bench import Case, Row, cases, measure, render
from volumetric.bench import profile as profile_of
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.foreign_flags import SUITES as MOVED
from volumetric.cli.loading import open_for
from volumetric.cli.options import DeviceOptions, ModelSource, OutputOptions, SourceOptions
from volumetric.generate import Model

if TYPE_CHECKING:
    from volumetric.bench.serve import Load, ServeRow, ServerTarget

SERVERS = Group("Servers (--suite serve)", sort_key=2)
_REQUESTS = ((1, 4), (4, 12), (16, 32), (64, 64))
"""Pairs of the most clients and the default number of requests."""


@Parameter(name="*", group=SERVERS)
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Servers, and their load.

    Parameters
    ----------
    url : str
        URL of the server, or of several servers, separated by commas, which are measured in turn.
    clients : str
        Numbers of concurrent clients, separated by commas.
    requests : int
        Requests of a load; default: 4, 12, 32 and 64 for 1, 4, 16 and 64 clients.
    field : list[str]
        Further field of each request, such as temperature=0.8; may be repeated.
    """

    url: str = "http://127.0.0.1:8080"
    clients: str = "1,4,16"
    requests: int | None = None
    field: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=False)] = ()

    def targets(self) -> list[ServerTarget]:
        """Return the servers. Raises `UsageError`."""
        from volumetric.bench.serve import ServerTarget

        try:
            return [ServerTarget.of(url, os.environ.get("VOLUMETRIC_API_KEY") or "none") for url in self.url.split(",")]
        except SpecError as error:
            raise UsageError(f"--url: {error}", hint=error.hint) from None

    def loads(self, tokens: int) -> list[Load]:
        """Return the loads, with answers of `tokens` tokens. Raises `UsageError`."""
        from volumetric.bench.serve import Load

        try:
            counts = [int(count) for count in self.clients.split(",")]
        except ValueError:
            raise UsageError(f"--clients must be whole numbers, got {self.clients!r}", hint="as in 1,4,16") from None
        if min(counts) < 1 or tokens < 1 or (self.requests is not None and self.requests < 1):
            raise UsageError("--clients, --requests and --n-gen must be 1 or more")
        fields = dict(_field(one) for one in self.field)
        return [
            Load(clients=count, requests=max(count, self.requests or _requests(count)), tokens=tokens, fields=fields)
            for count in counts
        ]


def _requests(clients: int) -> int:
    return next((requests for most, requests in _REQUESTS if clients <= most), clients)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--field must be NAME=VALUE, got {text}", hint="as in --field temperature=0.8")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


_SUITES = ("layers", "training", "systolic", "stacks", "fabric", "program")
"""Suites of `benchmarks`."""


def bench(
    model: ModelSource = None,
    *,
    prompt: Annotated[str, Parameter(name=["--n-prompt", "-p"])] = "512",
    generate: Annotated[str, Parameter(name=["--n-gen", "-n"])] = "128",
    pair: Annotated[tuple[str, ...], Parameter(name=["--pg", "-pg"], negative="", show_default=False)] = (),
    depth: Annotated[str, Parameter(name=["--n-depth", "-d"])] = "0",
    batch: Annotated[str, Parameter(name=["--batch", "-b"])] = "1",
    profile: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    threads: Annotated[str | None, Parameter(name=["--threads", "-t"])] = None,
    repetitions: Annotated[int, Parameter(name=["--repetitions", "-r"])] = 5,
    form: Annotated[Literal["md", "csv", "json", "jsonl"], Parameter(name=["--output", "-o"])] = "md",
    suite: str = "model",
    servers: ServerOptions = ServerOptions(),
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Measure prompt processing (pp) and token generation (tg) in tokens per second; or servers under load.

    Random token ids go straight to the device: tokenising, sampling and a warm-up are not counted.
    Sizes are lists separated by commas. The suite "serve" needs no model: concurrent clients request answers of --n-gen
    tokens from a running server, or from several in turn. An ONNX file is measured in calls: an open first axis is
    --batch, and other open sizes are --n-prompt.

    Parameters
    ----------
    model : str
        The model, see generate.
    prompt : str
        Prompt sizes; 0 for none.
    generate : str
        Numbers of tokens to generate; 0 for none.
    pair : tuple of str
        PROMPT,GENERATE measured together; may be repeated.
    depth : str
        Tokens in the context beforehand.
    batch : str
        Numbers of sequences that generate together; the speed is the sum over all of them.
    profile : bool
        Also show the time of each step: of one prompt call, or of one token of each sequence.
    threads : str
        Numbers of CPU threads; default: the physical cores.
    repetitions : int
        Repetitions; mean and standard deviation are shown.
    form : str
        Format of the rows on stdout.
    suite : str
        What to measure: "model", or "serve" for servers.
    """
    output.apply()
    if suite == "serve":
        return _serve(servers, sizes("-n", generate)[0], repetitions, form)
    if suite != "model":
        name = suite if suite in _SUITES else "--help"
        raise UsageError(f"unknown suite {suite!r}", hint=f"{MOVED}: python -m benchmarks {name}")
    if model is not None and model.endswith(".onnx"):
        from volumetric.cli.onnx_files import bench_onnx, onnx_path

        path = onnx_path(model)
        sizes_of = sizes("-b", batch)[0], sizes("-p", prompt)[0]
        count = None if threads is None else sizes("-t", threads)[0]
        if path is not None:
            return bench_onnx(
                path, device.device, batch=sizes_of[0], size=sizes_of[1], repeats=repetitions, threads=count
            )
    chosen_cases = cases(
        sizes("-p", prompt),
        sizes("-n", generate),
        [_pair(text) for text in pair],
        sizes("-d", depth),
        sizes("-b", batch),
    )
    counts = [None] if threads is None else sizes("-t", threads)
    rows: list[Row] = []
    for count in counts:
        context = max(case.context for case in chosen_cases)
        with open_for(model, source, device, context=context, threads=count) as opened:
            rows.extend(_rows(opened, chosen_cases, repetitions, profiled=profile))
    if rows:
        console.note(f"one token of context takes {rows[0].state_per_token:,} bytes of keys and values")
    console.write(render(rows, form))
    return exits.OK


def _serve(servers: ServerOptions, tokens: int, repetitions: int, form: str) -> int:
    from volumetric.bench.serve import measure_servers, render_serve

    rows: list[ServeRow] = []
    for row in measure_servers(servers.targets(), servers.loads(tokens), repetitions=repetitions):
        rows.append(row)
        console.note(f"{row.url}, {row.clients} clients: {row.tokens:,.1f} tokens/s {row.error}".rstrip())
    console.write(render_serve(rows, form))
    return exits.OK if not any(row.failed for row in rows) else exits.FAILED


def _rows(model: Model, chosen_cases: Sequence[Case], repetitions: int, *, profiled: bool) -> Iterator[Row]:
    about, device = model.info, model.device.info
    profiled_calls: set[tuple[int, int, int]] = set()  # the calls with a profile; a length changes nothing else
    for case in chosen_cases:
        with console.progress(f"{case.name} on {about.device}…"):
            samples = measure(model.executable, about.vocab_size, case, repetitions)
            call = case.prompt, case.depth, case.batch
            steps = (
                profile_of(model.executable, about.vocab_size, case) if profiled and call not in profiled_calls else ()
            )
            profiled_calls.add(call)
        yield Row.of(
            case,
            samples,
            model=about.name,
            size=model.footprint.nbytes,
            params=model.footprint.elements,
            device=about.device,
            description=device.description,
            dtype=about.dtype,
            threads=about.options.threads or device.details.get("threads"),
            version=__version__,
            state_per_token=model.executable.memory.state_per_token,
            steps=steps,
        )


def sizes(flag: str, text: str) -> list[int]:
    """Return the whole numbers of a flag, separated by commas. Raises `UsageError` for anything else."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise UsageError(f"{flag} must be whole numbers separated by commas, got {text!r}")
    return numbers


def _pair(text: str) -> tuple[int, int]:
    pair = sizes("-pg", text)
    if len(pair) != 2:
        raise UsageError(f"-pg must be PROMPT,GENERATE, got {text!r}")
    return pair[0], pair[1]
