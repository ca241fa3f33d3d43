"""The call formats of model families, recognised by the text of their chat templates.

Sources: the models' own templates, which `form_of` names, and those that llama.cpp has in
``models/templates``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from volumetric.serve.tools.call_form import CallForm
from volumetric.serve.tools.element_arguments import ElementMarks
from volumetric.serve.tools.numbered_texts import NUMBER
from volumetric.serve.tools.request_tools import RequestTools

HERMES: Final = CallForm("<tool_call>", '\n{"name": "', '", "arguments": ', "}\n</tool_call>")
"""Of Hermes, Qwen and others; also of models that learn of tools only from instructions."""
LLAMA: Final = CallForm('{"name": "', "", '", "parameters": ', "}")
"""Of Llama 3.1 and later."""
_PARAMETER: Final = ElementMarks("<parameter=", ">\n", "\n</parameter>\n")
QWEN_CODER: Final = CallForm("<tool_call>", "\n<function=", ">\n", "</function>\n</tool_call>", elements=_PARAMETER)
"""Of Qwen3-Coder, Qwen3.5 and models distilled from them."""
SEED: Final = CallForm(
    "<seed:tool_call>",
    "\n<function=",
    ">\n",
    "</function>\n</seed:tool_call>",
    elements=ElementMarks("<parameter=", ">", "</parameter>\n"),
)
"""Of Seed-OSS."""
GLM: Final = CallForm(
    "<tool_call>",
    "",
    "\n",
    "</tool_call>",
    elements=ElementMarks("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
)
"""Of GLM-4.5 and 4.6."""
MINIMAX: Final = CallForm(
    "<minimax:tool_call>",
    "",
    '">\n',
    "</invoke>\n",
    first='\n<invoke name="',
    joint='<invoke name="',
    last="</minimax:tool_call>",
    elements=ElementMarks('<parameter name="', '">', "</parameter>\n"),
)
"""Of MiniMax-M2."""
_DSML: Final = "｜DSML｜"
DEEPSEEK_ELEMENTS: Final = CallForm(
    f"<{_DSML}function_calls>",
    "",
    '">\n',
    f"</{_DSML}invoke>\n",
    first=f'\n<{_DSML}invoke name="',
    joint=f'<{_DSML}invoke name="',
    last=f"</{_DSML}function_calls>",
    elements=ElementMarks(
        f'<{_DSML}parameter name="',
        '" string="true">',
        f"</{_DSML}parameter>\n",
        valued='" string="false">',
        none="\n",
    ),
)
"""Of DeepSeek V3.2."""
FUNCTIONARY: Final = CallForm("<function=", "", ">", "</function>", gap="")
"""Of Functionary v3.1."""
FUNCTIONARY_ALOUD: Final = CallForm(">>>", "", "\n", "", gap="", aloud="all")
"""Of Functionary v3.2, which names the recipient of each part: ``all``, or a function."""
_LIST: Final = CallForm("", '{"name": "', '", "arguments": ', "}", joint=", ", last="]")
FUNCTOOLS: Final = replace(_LIST, trigger="functools[")
"""Of Phi-4-mini by Microsoft's recipes for vLLM, and of Firefunction v2."""
GRANITE: Final = replace(_LIST, trigger="<|tool_call|>", first="[")
"""Of Granite 3."""
PHI: Final = replace(GRANITE, last="]<|/tool_call|>")
"""Of Phi-4-mini."""
PHI_SINGLE: Final = replace(PHI, first="", joint="", last="", closing="}<|/tool_call|>", gap="")
"""Of Phi-4-mini with llama.cpp's template."""
_CALLS, _CALL, _SEP = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"
_END, _ENDS = "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"
DEEPSEEK: Final = CallForm(_CALLS, "", _SEP, _END, first=_CALL, joint=_CALL, last=_ENDS)
"""Of DeepSeek V3.1."""
DEEPSEEK_FENCED: Final = CallForm(
    _CALLS,
    "",
    "\n```json\n",
    f"\n```{_END}",
    first=f"{_CALL}function{_SEP}",
    joint=f"\n{_CALL}function{_SEP}",
    last=_ENDS,
)
"""Of DeepSeek V3 and R1, and models distilled from R1."""
_KIMI_CALL: Final = "<|tool_call_begin|>functions."
KIMI: Final = CallForm(
    "<|tool_calls_section_begin|>",
    "",
    f":{NUMBER}<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    first=_KIMI_CALL,
    joint=_KIMI_CALL,
    last="<|tool_calls_section_end|>",
    ids="functions.",
)
"""Of Kimi K2, whose template writes earlier calls with their ids."""
COMMAND: Final = CallForm(
    "<|START_ACTION|>",
    f'{{"tool_call_id": "{NUMBER}", "tool_name": "',
    '", "parameters": ',
    "}",
    first="[\n    ",
    joint=",\n    ",
    last="\n]<|END_ACTION|>",
    spoken=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
"""Of Command R7B and Command A."""
CALLS, ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
MISTRAL_LIST: Final = replace(_LIST, trigger=CALLS, first="[", id_length=9)
"""Of Mistral 7B v0.3, Nemo and others of that time; their templates refuse ids of any other length."""
MISTRAL: Final = CallForm(CALLS, "", ARGUMENTS, "", gap="", id_length=9)
"""Of Mistral's models from Small 3.2 on."""

_MARKED: Final = (
    ("<seed:tool_call>", SEED),
    ("<minimax:tool_call>", MINIMAX),
    (_DSML, DEEPSEEK_ELEMENTS),
    ("<arg_key>", GLM),
    (KIMI.trigger, KIMI),
    ("<|im_system|>tool_declare", KIMI),
    (COMMAND.trigger, COMMAND),
)
"""Texts that only the templates of some families contain."""

Telling = Literal["template", "message", "instructions"]
"""How tools are declared: by the template, by the template from a field of the system message, or by instructions."""


def form_of(template: str, special_id: Callable[[str], int | None] = lambda _: None) -> tuple[CallForm, Telling]:
    """Return the call format of a chat template, and how tools are declared.

    Parameters
    ----------
    special_id : returns the id of a special token
    """
    form, telling = _call_form(template), "template"
    if form is None:
        return HERMES, "instructions"
    if not re.search(r"\btools\b", template):
        telling = "instructions"
    elif re.search(r"message(\['tools'\]|\[\"tools\"\]|\.tools\b)", template) and not re.search(
        r"\b(in|if) tools\b|\btools (is|and|or|\|)|\btools\|", template
    ):
        telling = "message"
    texts = (form.trigger, form.first, form.opening, form.between, form.closing, form.joint, form.last, *form.spoken)
    marks = {mark for text in texts for mark in re.findall(r"<[｜|][^<>]*[|｜]>|\[[A-Z_]+\]", text)}
    ids = {mark: special_id(mark) for mark in marks}
    return replace(form, marks={mark: id for mark, id in ids.items() if id is not None}), telling


def _call_form(template: str) -> CallForm | None:
    tools = bool(re.search(r"\btools\b", template))
    if CALLS in template:
        return MISTRAL if ARGUMENTS in template else MISTRAL_LIST
    if _CALLS in template:
        return DEEPSEEK_FENCED if "```json" in template else DEEPSEEK
    for mark, form in _MARKED:
        if mark in template:
            return form
    if "<function=" in template:
        return QWEN_CODER if _PARAMETER.before in template else FUNCTIONARY
    if ">>>all" in template:
        return FUNCTIONARY_ALOUD
    if "functools[" in template:
        return FUNCTOOLS
    if "<|tool|>" in template or "<|/tool_call|>" in template:
        return PHI_SINGLE if "<|tool_call|>{" in template else PHI
    if "<|tool_call|>" in template:
        return GRANITE
    if tools and "<tool_call>" in template:
        return HERMES
    if tools and ("<|python_tag|>" in template or '"parameters"' in template):
        return LLAMA
    return None


def functions_json(tools: RequestTools) -> str:
    """Return the functions as JSON text, for templates that expect it (Phi-4-mini)."""
    return json.dumps([tool["function"] for tool in tools.declarations], ensure_ascii=False)


def instructions(tools: RequestTools, form: CallForm) -> str:
    """Return instructions that declare tools, for a model whose template does not."""
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools.declarations)
    how = form.write_calls([("NAME", {"ARGUMENT": "VALUE"})])
    return f"You can call these functions:\n{listed}\n\nTo call one, write nothing but\n{how}"
