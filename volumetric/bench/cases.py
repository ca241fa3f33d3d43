"""What to measure: prompt processing, token generation, or one after the other, at some depth of context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from volumetric.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    prompt : tokens processed at once
    generate : tokens generated one after the other
    depth : tokens in the context beforehand; putting them there is not timed
    """

    prompt: int = 0
    generate: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        if min(self.prompt, self.generate, self.depth) < 0 or self.prompt + self.generate == 0:
            raise SpecError(
                f"a benchmark case needs tokens to process or to generate, got {self.prompt}, {self.generate} "
                f"at depth {self.depth}"
            )

    @property
    def name(self) -> str:
        """``pp512``, ``tg128`` or ``pp512+tg128``, with ``@ d4096`` where there is depth."""
        parts = [f"pp{self.prompt}"] * bool(self.prompt) + [f"tg{self.generate}"] * bool(self.generate)
        return "+".join(parts) + (f" @ d{self.depth}" if self.depth else "")

    @property
    def context(self) -> int:
        """Tokens that the context must hold."""
        return self.depth + self.prompt + self.generate


def cases(
    prompts: Sequence[int],
    generates: Sequence[int],
    pairs: Sequence[tuple[int, int]] = (),
    depths: Sequence[int] = (0,),
) -> tuple[Case, ...]:
    """Return the rows for lists of sizes; a size of 0 leaves its test out, as in llama-bench.

    Raises
    ------
    SpecError : nothing is left to measure, or a size is negative
    """
    found = [
        Case(prompt=prompt, generate=generate, depth=depth)
        for depth in depths
        for prompt, generate in [*((p, 0) for p in prompts if p), *((0, n) for n in generates if n), *pairs]
    ]
    if not found:
        raise SpecError("nothing to measure", hint="give a prompt size (-p), a generation size (-n), or both")
    return tuple(found)
