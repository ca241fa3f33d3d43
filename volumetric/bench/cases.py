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
    batch : sequences that generate together; prompts are processed one at a time
    """

    prompt: int = 0
    generate: int = 0
    depth: int = 0
    batch: int = 1

    def __post_init__(self) -> None:
        if min(self.prompt, self.generate, self.depth) < 0 or self.prompt + self.generate == 0:
            raise SpecError(
                f"a benchmark case needs tokens to process or to generate, got {self.prompt}, {self.generate} "
                f"at depth {self.depth}"
            )
        if self.batch < 1 or (self.batch > 1 and self.prompt):
            raise SpecError(f"a batch is of 1 or more sequences that generate without a prompt, got {self}")

    @property
    def name(self) -> str:
        """``pp512``, ``tg128``, ``tg128 x4`` or ``pp512+tg128``, with ``@ d4096`` where there is depth."""
        generated = f"tg{self.generate}" + (f" x{self.batch}" if self.batch > 1 else "")
        parts = [f"pp{self.prompt}"] * bool(self.prompt) + [generated] * bool(self.generate)
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
    batches: Sequence[int] = (1,),
) -> tuple[Case, ...]:
    """Return the rows for lists of sizes; a size of 0 leaves its test out, as in llama-bench.

    Generation runs once for each size of batch; prompts and pairs stay single.

    Raises
    ------
    SpecError : nothing is left to measure, or a size is negative
    """
    found = [
        Case(prompt=prompt, generate=generate, depth=depth, batch=batch)
        for depth in depths
        for prompt, generate, batch in [
            *((p, 0, 1) for p in prompts if p),
            *((0, n, b) for n in generates if n for b in batches),
            *((p, n, 1) for p, n in pairs),
        ]
    ]
    if not found:
        raise SpecError("nothing to measure", hint="give a prompt size (-p), a generation size (-n), or both")
    return tuple(found)
