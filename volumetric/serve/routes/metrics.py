"""``GET /metrics``: metrics in Prometheus' text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from volumetric.generate.scheduling.scheduler_stats import Histogram, SchedulerStats
    from volumetric.serve.engine import Engine
    from volumetric.serve.serving import Serving

_COUNTERS: Mapping[str, tuple[str, str]] = {
    "submitted": ("jobs_total", "Jobs accepted."),
    "finished": ("finished_total", "Jobs that ended with all of their texts."),
    "failed": ("failed_total", "Jobs that ended with an error."),
    "cancelled": ("cancelled_total", "Jobs that were cancelled, or whose client disconnected."),
    "expired": ("expired_total", "Jobs that exceeded their time limit."),
    "preempted": ("preemptions_total", "Texts that lost their slot for lack of memory, and were computed again."),
    "yielded": ("yields_total", "Texts that yielded their slot to another request, or whose client does not read."),
    "prompt_tokens": ("prompt_tokens_total", "Tokens of prompts."),
    "cached_tokens": ("prompt_tokens_cached_total", "Tokens of prompts that were cached."),
    "generated_tokens": ("generated_tokens_total", "Tokens generated."),
    "drafted_tokens": ("draft_tokens_total", "Tokens that drafters proposed."),
    "accepted_tokens": ("draft_tokens_accepted_total", "Proposed tokens that the model accepted."),
    "prefix_evictions": ("prefix_evictions_total", "Cached prefixes that were evicted for lack of memory."),
}
_GAUGES: Mapping[str, tuple[str, str]] = {
    "running": ("requests_running", "Texts that are generated now."),
    "waiting": ("requests_waiting", "Jobs that wait for a slot."),
    "queue_tokens": ("queue_tokens", "Tokens of the prompts of waiting jobs."),
    "state_bytes": ("kv_bytes", "Memory of all states."),
    "prefix_bytes": ("prefix_bytes", "Memory of cached prefixes."),
    "prefix_entries": ("prefix_entries", "Cached prefixes."),
}
_BY_ADAPTER: Mapping[str, tuple[str, str]] = {
    "adapter_jobs": ("adapter_jobs_total", "Jobs accepted for an adapter that shares a model's device calls."),
    "adapter_tokens": (
        "adapter_generated_tokens_total",
        "Tokens generated for an adapter that shares a model's device calls.",
    ),
}
_HISTOGRAMS: Mapping[str, tuple[str, str]] = {
    "first_token": ("time_to_first_token_seconds", "From submission to the first token."),
    "between_tokens": ("inter_token_seconds", "From one token to the next."),
    "queued": ("queue_seconds", "From submission to a slot."),
    "requests": ("request_seconds", "From submission to the end."),
    "rows": ("batch_rows", "Rows of a device call."),
}


async def metrics(request: Request) -> Response:
    """Return all metrics."""
    serving: Serving = request.app.state.serving
    first: dict[Engine, str] = {}
    for served in serving.models.values():
        if served.engine is not None:
            first.setdefault(served.engine, served.name)
    stats = {name: engine.scheduler.stats for engine, name in first.items()}
    text = "\n".join([*_scheduler_lines(stats), *_answer_lines(serving.answered)]) + "\n"
    return Response(text.encode(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _scheduler_lines(stats: Mapping[str, SchedulerStats]) -> Iterator[str]:
    """Yield the Prometheus lines of the schedulers, by model."""
    for kind, table in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for field, (name, help_text) in table.items():
            yield from _head(name, kind, help_text)
            for model, one in stats.items():
                yield f"volumetric_{name}{_labels(model=model)} {getattr(one, field)}"
    yield from _head("kv_bytes_limit", "gauge", "Limit of the memory of all states; 0: no limit.")
    for model, one in stats.items():
        yield f"volumetric_kv_bytes_limit{_labels(model=model)} {one.state_limit or 0}"
    yield from _head("rejected_total", "counter", "Jobs rejected.")
    for model, one in stats.items():
        for reason, count in sorted(one.rejected.items()):
            yield f"volumetric_rejected_total{_labels(model=model, reason=reason)} {count}"
    for field, (name, help_text) in _BY_ADAPTER.items():
        yield from _head(name, "counter", help_text)
        for model, one in stats.items():
            for adapter, count in sorted(getattr(one, field).items()):
                yield f"volumetric_{name}{_labels(model=model, adapter=adapter)} {count}"
    for field, (name, help_text) in _HISTOGRAMS.items():
        yield from _head(name, "histogram", help_text)
        for model, one in stats.items():
            yield from _histogram(name, getattr(one, field), model=model)
    yield from _head("step_seconds", "histogram", "Duration of a device call.")
    for model, one in stats.items():
        yield from _histogram("step_seconds", one.prompt_steps, model=model, kind="prompt")
        yield from _histogram("step_seconds", one.decode_steps, model=model, kind="decode")


def _answer_lines(answered: Mapping[tuple[str, int], int]) -> Iterator[str]:
    yield from _head("requests_total", "counter", "Responses, by path and status.")
    for (path, status), count in sorted(answered.items()):
        yield f"volumetric_requests_total{_labels(endpoint=path, status=str(status))} {count}"


def _histogram(name: str, values: Histogram, **labels: str) -> Iterator[str]:
    below = 0
    for bound, count in zip((*values.bounds, None), values.counts, strict=True):
        below += count
        le = "+Inf" if bound is None else f"{bound:g}"
        yield f"volumetric_{name}_bucket{_labels(**labels, le=le)} {below}"
    yield f"volumetric_{name}_sum{_labels(**labels)} {values.total}"
    yield f"volumetric_{name}_count{_labels(**labels)} {below}"


def _head(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP volumetric_{name} {help_text}"
    yield f"# TYPE volumetric_{name} {kind}"


def _labels(**labels: str) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
