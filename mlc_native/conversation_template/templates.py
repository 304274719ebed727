"""The chat formats of model families under MLC-LLM's names: fields of Conversation.

A style is what the models of a family share, a row what differs. Texts and token ids are those that
the models were trained with. A family that was trained with a system message has ``ASSISTANT`` as
its default: MLC-LLM's longer texts are not repeated here.
"""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]

ASSISTANT = "You are a helpful assistant."


def _style(
    user: str,
    assistant: str,
    seps: list[str],
    sep: str = "",
    empty_sep: str | None = None,
    *,
    tool: str | None = None,
    system: str = "{system_message}",
    stop: list[str] | None = None,
    **fields: Any,
) -> Fields:
    """``sep`` stands between a role and its content, ``empty_sep`` before an answer."""
    roles = {"user": user, "assistant": assistant, **({} if tool is None else {"tool": tool})}
    return {
        **{"roles": roles, "seps": seps, "role_content_sep": sep},
        "role_empty_sep": sep if empty_sep is None else empty_sep,
        **{"system_template": system, "stop_str": stop or [], **fields},
    }


def _row(style: Fields, stop_ids: list[int], prefix: list[int] | None = None, **f: Any) -> Fields:
    """``stop_ids`` end an answer, ``prefix`` begins the prompt."""
    return {**style, "stop_token_ids": stop_ids, "system_prefix_token_ids": prefix, **f}


_END = "</s>"
_TEXT = "<|endoftext|>"
_IM_END = "<|im_end|>"
_EOS_DEEPSEEK = "<｜end▁of▁sentence｜>"

_PLAIN = _style("", "", [""])
_CHATML = _style(
    *("<|im_start|>user", "<|im_start|>assistant", ["<|im_end|>\n"], "\n"),
    system="<|im_start|>system\n{system_message}<|im_end|>\n",
    stop=[_IM_END],
    system_message=ASSISTANT,
)
_CHATML_TOOLS = {**_CHATML, "roles": {**_CHATML["roles"], "tool": "<|im_start|>tool"}}
_QWEN = {**_CHATML, "stop_str": [_TEXT, _IM_END]}
_GEMMA = _style(
    *("<start_of_turn>user", "<start_of_turn>model", ["<end_of_turn>\n"], "\n"),
    stop=["<end_of_turn>"],
)
_LLAMA_3 = _style(
    *("<|start_header_id|>user", "<|start_header_id|>assistant", ["<|eot_id|>"]),
    "<|end_header_id|>\n\n",
    system="<|start_header_id|>system<|end_header_id|>\n\n{system_message}<|eot_id|>",
    system_message=ASSISTANT,
)
_DEEPSEEK = _style(*("User", "Assistant", ["\n\n", _EOS_DEEPSEEK], ": ", ":"), stop=[_EOS_DEEPSEEK])
_DEEPSEEK_V3 = _style(
    *("<｜User｜>", "<｜Assistant｜>", ["", _EOS_DEEPSEEK]),
    system="<｜begin▁of▁sentence｜>{system_message}",
    system_message=ASSISTANT,
)
_MARKED = _style("<|user|>", "<|assistant|>", ["\n"], "\n")  # Phi-3, OLMo, StableLM and others
_PHI = {**_MARKED, "seps": ["<|end|>\n"], "stop_str": [_TEXT]}
_PHI_SYSTEM: Fields = {
    "system_template": "<|system|>\n{system_message}",
    "system_message": ASSISTANT,
}
_STABLELM = {**_MARKED, "seps": [_TEXT, _TEXT], "stop_str": [_TEXT]}
_MINISTRAL = {
    **_PLAIN,
    "roles": {"user": "", "assistant": "", "tool": ""},
    "system_template": "[SYSTEM_PROMPT]{system_message}[/SYSTEM_PROMPT]{function_string}",
    "role_templates": {
        "user": "[INST]{user_message}[/INST]",
        "assistant": "{assistant_message}</s>",
        "tool": "[TOOL_RESULTS]{tool_message}[/TOOL_RESULTS]",
    },
    "stop_str": [_END],
    "system_message": ASSISTANT,
}
_HEADINGS = _style("### Instruction", "### Response", ["\n", "<|EOT|>"], ": ")
_LLAMA_3_ENDS: Fields = {"stop_str": ["<|end_of_text|>", "<|eot_id|>"]}
_AFTER_SYSTEM: Fields = {"add_role_after_system_message": False}

TEMPLATES: dict[str, Fields] = {
    # ChatML
    "chatml": _row(_CHATML, [2]),
    "chatml_nosystem": _row(_CHATML, [2], system_template="{system_message}", system_message=""),
    "open_hermes_mistral": _row(_CHATML, [2, 32000]),
    "neural_hermes_mistral": _row(_CHATML, [2, 32000]),
    "hermes2_pro_llama3": _row(_CHATML_TOOLS, [128001, 128009, 128003]),
    "hermes3_llama-3_1": _row(_CHATML_TOOLS, [128001, 128008, 128009, 128040]),
    "qwen2": _row(_QWEN, [151643, 151645]),
    "qwen3": _row(_QWEN, [151643, 151645], strip_reasoning_in_history=True),
    "qwen3_5": _row(
        *(_QWEN, [248046, 248044]),
        roles={"user": "<|im_start|>user", "assistant": "<|im_start|>assistant\n<think>"},
    ),
    "qwen3_5_nothink": _row(
        *(_QWEN, [248046, 248044]),
        roles={
            "user": "<|im_start|>user",
            "assistant": "<|im_start|>assistant\n<think>\n\n</think>\n",
        },
    ),
    # Llama and Mistral
    "llama-4": _row(
        _style(
            *("<|header_start|>user", "<|header_start|>assistant", ["<|eot|>"]),
            "<|header_end|>\n\n",
            tool="<|header_start|>ipython",
            system="",
        ),
        *([200001, 200007, 200008], [200000]),
        **_AFTER_SYSTEM,
    ),
    "llama-3_1": _row(
        *(_LLAMA_3, [128001, 128008, 128009], [128000]),
        roles={**_LLAMA_3["roles"], "tool": "<|start_header_id|>ipython"},
    ),
    "llama-3": _row(_LLAMA_3, [128001, 128009], [128000], **_LLAMA_3_ENDS),
    "llama-2": _row(
        _style(
            *("<s>[INST]", "[/INST]", [" ", " </s>"], " "),
            tool="[INST]",
            system="[INST] <<SYS>>\n{system_message}\n<</SYS>>\n\n",
            stop=["[INST]"],
            system_message=ASSISTANT,
        ),
        *([2], [1]),
        **_AFTER_SYSTEM,
    ),
    "codellama_completion": _row(_PLAIN, [2], [1], stop_str=[_END]),
    "codellama_instruct": _row(_style("[INST]", "[/INST]", [" "], " ", stop=[_END]), [2], [1]),
    "mistral_default": _row(
        _style(
            *("[INST]", "[/INST]", [" "], " ", ""),
            tool="[INST]",
            system="[INST] {system_message}",
            stop=[_END],
            system_message=ASSISTANT,
        ),
        *([2], [1]),
        **_AFTER_SYSTEM,
    ),
    "ministral3": _row(_MINISTRAL, [2], [1]),
    "ministral3_reasoning": _row(_MINISTRAL, [2], [1]),
    "tinyllama_v1_0": _row(
        *({**_MARKED, "seps": [_END], "stop_str": [_END]}, [2]),
        system_template="<|system|>\n{system_message}</s>",
        system_message=ASSISTANT,
    ),
    "llava": _row(
        _style("USER", "ASSISTANT", [" "], ": ", ":", stop=[_END], system_message=" "),
        *([2], [1]),
        **_AFTER_SYSTEM,
    ),
    # Phi
    "phi-2": _row(_style("Instruct", "Output", ["\n"], ": ", ":", stop=[_TEXT]), [50256]),
    "phi-3": _row(_PHI, [2, 32000, 32001, 32007], [1], **_PHI_SYSTEM),
    "phi-3-vision": _row(_PHI, [2, 32000, 32001, 32007], [1]),
    "phi-4": _row(_PHI, [199999, 200020], [200022], **_PHI_SYSTEM, stop_str=[_TEXT, "<|end|>"]),
    # Gemma, DeepSeek, OLMo, StableLM
    "gemma_instruction": _row(_GEMMA, [1, 107], [2]),
    "gemma3_instruction": _row(_GEMMA, [1, 106], [2]),
    "deepseek": _row(_DEEPSEEK, [100001], [100000]),
    "deepseek_v2": _row(_DEEPSEEK, [100001], [100000]),
    "deepseek_v3": _row(_DEEPSEEK_V3, [1]),
    "deepseek_r1_qwen": _row(_DEEPSEEK_V3, [151643]),
    "deepseek_r1_llama": _row(_DEEPSEEK_V3, [128001]),
    "olmo": _row(_MARKED, [50279], [50279]),
    "olmo2": _row(
        *({**_MARKED, "seps": ["<|endoftext|>\n"], "stop_str": [_TEXT]}, [100257], [100257]),
        system_template="<|system|>\n{system_message}\n",
    ),
    "stablelm": _row(
        _style("<|USER|>", "<|ASSISTANT|>", [""], ": ", system_message=f"<|SYSTEM|>{ASSISTANT}"),
        [50278, 50279, 50277, 1, 0],
    ),
    "stablelm-3b": _row(_STABLELM, [0]),
    "stablelm-2": _row(_STABLELM, [100257]),
    # Others
    "aya-23": _row(
        _style(
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
            ["<|END_OF_TURN_TOKEN|>"],
            system="<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{system_message}<|END_OF_TURN_TOKEN|>",
            stop=["<|END_OF_TURN_TOKEN|>"],
            system_message=ASSISTANT,
        ),
        *([6, 255001], [5]),
    ),
    "dolly": _row(
        {**_HEADINGS, "seps": ["\n\n", "### End\n"], "stop_str": ["### End"]},
        [50256],
        role_content_sep=":\n",
        role_empty_sep=":\n",
        system_message=ASSISTANT,
    ),
    "glm": _row(
        _style("问", "答", ["\n\n"], ": ", ":", tool="问", stop=[_END]), [2], [64790, 64792]
    ),
    "gorilla": _row(
        _style("USER", "ASSISTANT", ["\n", _END], ": ", ":", tool="USER", stop=[_END]),
        *([2], [1]),
        role_templates={"user": "<<question>> {user_message} <<function>> {function_string}"},
        system_message=ASSISTANT,
    ),
    "gorilla-openfunctions-v2": _row(
        {**_HEADINGS, "roles": {**_HEADINGS["roles"], "tool": "### Instruction"}},
        *([100015], [100000]),
        role_templates={"user": "<<function>>{function_string}\n<<question>>{user_message}"},
        stop_str=["<|EOT|>"],
        system_message=ASSISTANT,
    ),
    "gpt2": _row(_PLAIN, [50256], stop_str=[_END]),
    "gpt_bigcode": _row(_PLAIN, [0], stop_str=[_TEXT]),
    "llm-jp": _row(
        _style("\n\n### 指示:", "\n\n### 応答:", ["", _END], "\n", system_message=ASSISTANT),
        *([2], [1]),
    ),
    "LM": _row(_PLAIN, [2], [1]),
    "nemotron": _row(
        _style(
            *("<extra_id_1>User", "<extra_id_1>Assistant", ["\n"], "\n"),
            tool="<extra_id_1>Tool",
            system="<extra_id_0>System\n{system_message}\n\n",
            stop=[_END],
        ),
        *([3], [2]),
    ),
    "oasst": _row(_style("<|prompter|>", "<|assistant|>", [_TEXT], ": ", stop=[_TEXT]), [2]),
    "orion": _row(
        _style("Human: ", "Assistant: ", ["\n\n", _END], "", _END, stop=[_END]), [2], [1]
    ),
    "redpajama_chat": _row(_style("<human>", "<bot>", ["\n"], ": ", ":", stop=["<human>"]), [0]),
    "rwkv_world": _row(
        _style(
            *("User", "Assistant", ["\n\n"], ": "),
            system="User: hi\n\nAssistant: {system_message}",
            stop=["\n\n"],
            system_message=ASSISTANT,
        ),
        [0],
    ),
    "wizardlm_7b": _row(_style("User", "Response", ["###"], ": ", ":", stop=["###"]), [2], [1]),
    "wizard_coder_or_math": _row(
        _style("Instruction", "Response", ["\n\n### "] * 2, ":\n", stop=[_END]),
        *([2], [1]),
        system_message=ASSISTANT,
    ),
}
