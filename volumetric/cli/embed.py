"""The command ``embed``: embeddings of texts."""

from __future__ import annotations

import io
import json as jsonlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from cyclopts import Parameter

from volumetric.base._typing import F32Array
from volumetric.base.atomic import write_atomic
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.loading import open_for
from volumetric.cli.options import DeviceOptions, OutputOptions, SizeOptions, SourceOptions

Form = Literal["jsonl", "npy", "npz"]


def embed(
    model: str,
    /,
    *texts: str,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    form: Annotated[Form | None, Parameter(name="--format")] = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    pooling: str | None = None,
    normalise: Annotated[bool | None, Parameter(name=["--normalise", "--normalize"])] = None,
    max_length: int | None = None,
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    size: SizeOptions = SizeOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Compute embeddings of texts, one float32 row each, as in sentence-transformers.

    Parameters
    ----------
    model : str
        The model, see generate.
    texts : str
        Texts; without texts and --file, the lines of stdin.
    file : path
        File with a text per line; in a .jsonl file a string, or an object with the member "text".
    out : path
        File to write, atomically; default: stdout.
    form : str
        jsonl: an object with the text and its embedding in each line. npy: the array [n, d]. npz: the arrays embeddings
        and texts. Default: by the ending of --out, else jsonl.
    prompt_name : str
        Name of a prompt in the model's files that precedes each text, such as query.
    prompt : str
        Prompt that precedes each text.
    pooling : str
        cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken; default: from the model's files.
    normalise : bool
        Scale embeddings to length 1; default: from the model's files.
    max_length : int
        Tokens after which a text is truncated; default: from the model's files.
    """
    output.apply()
    if texts and file is not None:
        raise UsageError("texts and --file exclude each other", hint="give only one of them")
    chosen = _form(out, form)
    if out is None and chosen != "jsonl" and sys.stdout.isatty():
        raise UsageError(f"{chosen} cannot be written to a terminal", hint="use --out FILE, or redirect stdout")
    inputs = list(texts) or _read(file)
    with (
        open_for(model, source, device, context=size.context, threads=size.threads) as opened,
        console.progress(f"embedding {len(inputs)} texts with {opened.name} on {opened.info.device}…"),
    ):
        rows = opened.embed(
            inputs,
            prompt=prompt,
            prompt_name=prompt_name,
            pooling=pooling,
            normalise=normalise,
            max_length=max_length,
        )
    data = _encode(chosen, inputs, rows)
    if out is not None:
        write_atomic(out, data)
        console.note(f"{len(inputs)} embeddings of size {rows.shape[1]} written to {out}")
    elif chosen == "jsonl":
        console.write(data.decode())
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return exits.OK


def _form(out: Path | None, form: Form | None) -> Form:
    if form is not None:
        return form
    endings: dict[str, Form] = {".jsonl": "jsonl", ".npy": "npy", ".npz": "npz"}
    if out is None:
        return "jsonl"
    if out.suffix not in endings:
        raise UsageError(f"--out must end in one of {', '.join(endings)}, got {out}", hint="or set --format")
    return endings[out.suffix]


def _read(file: Path | None) -> list[str]:
    if file is None:
        if sys.stdin.isatty():
            raise UsageError("no text", hint="pass texts, --file, or lines on stdin")
        return console.read_all().splitlines()
    lines = file.read_text(encoding="utf-8").splitlines()
    if file.suffix != ".jsonl":
        return lines
    return [_text(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _text(file: Path, number: int, line: str) -> str:
    try:
        value = jsonlib.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}, line {number} is not JSON: {str(error)[:100]}") from None
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise UsageError(f'{file}, line {number} is neither a string nor an object with a "text"')
    return text


def _encode(form: Form, texts: Sequence[str], rows: F32Array) -> bytes:
    if form == "jsonl":
        pairs = zip(texts, rows.tolist(), strict=True)
        lines = (jsonlib.dumps({"text": text, "embedding": row}, ensure_ascii=False) for text, row in pairs)
        return "".join(f"{line}\n" for line in lines).encode()
    target = io.BytesIO()
    if form == "npy":
        np.save(target, rows)
    else:
        np.savez(target, embeddings=rows, texts=np.array(texts, np.str_))
    return target.getvalue()
