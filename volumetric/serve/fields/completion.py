"""The body of a text completion."""

from __future__ import annotations

from volumetric.serve.fields.sampled import Sampled, check_tops
from volumetric.serve.problem import bad

MOST_PROMPTS = 64


class CompletionRequest(Sampled, kw_only=True):
    """``POST /v1/completions``."""

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None
    suffix: str | None = None

    def check(self) -> None:
        """Raise `RequestError` for what cannot be honoured."""
        self.check_streaming()
        if self.echo and self.suffix:
            raise bad("echo and suffix exclude each other: the text is in the middle then", param="echo")

    @property
    def alone(self) -> bool:
        """Whether the prompt is to be told, and nothing that follows it."""
        return bool(self.echo) and self.max_tokens == 0

    @property
    def tops(self) -> int | None:
        """Alternatives to tell of each token; None: no log-probabilities."""
        return None if self.logprobs is None else check_tops(self.logprobs, "logprobs")

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts. Raises `RequestError` unless there is at least one, and each has something."""
        items = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        ids = [one for one in items if isinstance(one, int)]
        if ids and len(ids) == len(items):
            return [ids]
        prompts = [one for one in items if not isinstance(one, int)]
        # Before a suffix there may be nothing: the place is where a text begins.
        if not 1 <= len(prompts) <= MOST_PROMPTS or ids or not (self.suffix or all(prompts)):
            raise bad(f"prompt must be 1 to {MOST_PROMPTS} texts or lists of token ids, none empty", param="prompt")
        return prompts
