"""The body of a text completion."""

from __future__ import annotations

from volumetric.serve.fields.sampling_fields import SamplingFields, check_tops
from volumetric.serve.problem import bad_request

MOST_PROMPTS = 64


class CompletionRequest(SamplingFields, kw_only=True):
    """``POST /v1/completions``."""

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None
    suffix: str | None = None

    def check(self) -> None:
        """Raise `RequestError` for fields that contradict each other or are not supported."""
        self.check_streaming()
        if self.echo and self.suffix:
            raise bad_request(
                "echo and suffix exclude each other: the generated text does not follow the whole prompt", param="echo"
            )

    @property
    def alone(self) -> bool:
        """Whether only the prompt is returned, without generated text."""
        return bool(self.echo) and self.max_tokens == 0

    @property
    def tops(self) -> int | None:
        """Number of alternatives returned for each token; None: no log-probabilities."""
        return None if self.logprobs is None else check_tops(self.logprobs, "logprobs")

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts. Raises `RequestError` if there is none, or one is empty."""
        items = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        ids = [one for one in items if isinstance(one, int)]
        if ids and len(ids) == len(items):
            return [ids]
        prompts = [one for one in items if not isinstance(one, int)]
        # With a suffix the prompt may be empty: the generated text is then the beginning.
        if not 1 <= len(prompts) <= MOST_PROMPTS or ids or not (self.suffix or all(prompts)):
            raise bad_request(
                f"prompt must be 1 to {MOST_PROMPTS} texts or lists of token ids, none empty", param="prompt"
            )
        return prompts
