"""Chat templates by name, for models whose file brings none or a broken one.

The names and what they write are those of llama.cpp's ``llama-chat.cpp``; ``mistral`` is its
``mistral-v3``. None of them writes BOS, which the tokenizer adds, and none knows tools.
"""

import json
import re
from collections.abc import Mapping

_EXPRESSIONS = {
    "CONTENT": "message.content",
    "TRIMMED": "message.content | trim",
    "ROLE": "message.role",
}


def _shown(pattern: str) -> str:
    """Turn ``<CONTENT>``, ``<TRIMMED>`` and ``<ROLE>`` into Jinja, what is between into texts."""
    pieces = re.split("<(CONTENT|TRIMMED|ROLE)>", pattern)
    shown = [
        _EXPRESSIONS[piece] if place % 2 else json.dumps(piece, ensure_ascii=False)
        for place, piece in enumerate(pieces)
        if piece
    ]
    return "".join(f"{{{{ {each} }}}}" for each in shown)


def _each(turn: str, opening: str = "", *, start: str = "") -> str:
    """Write the same for every message, whatever its role."""
    return _loop(start, _shown(turn), opening)


def _by_role(opening: str, *, start: str = "", other: str = "", **turns: str) -> str:
    """Write what belongs to a message's role, and ``other`` for any other role."""
    branches = "".join(
        f"{{% {'elif' if place else 'if'} message.role == '{role}' %}}{_shown(turn)}"
        for place, (role, turn) in enumerate(turns.items())
    )
    last = f"{{% else %}}{_shown(other)}" if other else ""
    return _loop(start, f"{branches}{last}{{% endif %}}", opening)


def _loop(start: str, turn: str, opening: str) -> str:
    return (
        f"{_shown(start)}{{% for message in messages %}}{turn}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{_shown(opening)}{{% endif %}}"
    )


def _instructed(*, first: str, again: str, system: str, user: str, assistant: str) -> str:
    """Open an instruction at first and again where none is open; an assistant's turn closes it."""
    return (
        f"{_shown(first)}{{% set ns = namespace(open=true) %}}"
        "{% for message in messages %}"
        f"{{% if not ns.open %}}{_shown(again)}{{% set ns.open = true %}}{{% endif %}}"
        f"{{% if message.role == 'system' %}}{_shown(system)}"
        f"{{% elif message.role == 'user' %}}{_shown(user)}"
        f"{{% else %}}{_shown(assistant)}{{% set ns.open = false %}}{{% endif %}}{{% endfor %}}"
    )


def _llama2(system: str, *, content: str = "<CONTENT>", again: str = "[INST] ") -> str:
    return _instructed(
        first="[INST] ",
        again=again,
        system=system.replace("<CONTENT>", content),
        user=f"{content} [/INST]",
        assistant=f"{content}</s>",
    )


def _mistral(leading: str, trailing: str, *, answer: str = "<CONTENT>") -> str:
    opened = f"{leading}[INST]{trailing}"
    return _instructed(
        first=opened,
        again=opened,
        system="<CONTENT>\n\n",
        user=f"<CONTENT>{leading}[/INST]",
        assistant=f"{trailing}{answer}</s>",
    )


def _system_in_user(turn: str, *, trim: str, opening: str) -> str:
    """Collect system messages, which a turn writes where it says SYSTEM."""
    return (
        "{% set ns = namespace(system='') %}{% for message in messages %}"
        "{% if message.role == 'system' %}"
        f"{{% set ns.system = ns.system ~ (message.content{trim}) %}}"
        f"{{% else %}}{turn.replace('SYSTEM', _PENDING)}{{% endif %}}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{_shown(opening)}{{% endif %}}"
    )


_PENDING = '{% if ns.system %}{{ ns.system ~ "\\n\\n" }}{% set ns.system = "" %}{% endif %}'


def _bailing(end: str, opening: str, *, start: str = "") -> str:
    role = "{{ 'HUMAN' if message.role == 'user' else message.role | upper }}"
    turn = f"{_shown('<role>')}{role}{_shown(f'</role><CONTENT>{end}')}"
    return start + _loop("", turn, opening)


_GEMMA = _system_in_user(
    "{{ '<start_of_turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\\n' }}"
    "{% if message.role != 'assistant' %}SYSTEM{% endif %}"
    "{{ message.content | trim }}{{ '<end_of_turn>\\n' }}",
    trim=" | trim",
    opening="<start_of_turn>model\n",
)
_ORION = _system_in_user(
    "{% if message.role == 'user' %}{{ 'Human: ' }}SYSTEM"
    "{{ message.content ~ '\\n\\nAssistant: </s>' }}"
    "{% else %}{{ message.content ~ '</s>' }}{% endif %}",
    trim="",
    opening="",
)
_DEEPSEEK_END = "<\uff5cend\u2581of\u2581sentence\uff5c>"
_EXAONE = {
    "system": "[|system|]<TRIMMED>[|endofturn|]\n",
    "user": "[|user|]<TRIMMED>\n",
    "assistant": "[|assistant|]<TRIMMED>[|endofturn|]\n",
}
_EXAONE_MOE = {
    role: f"<|{role}|>\n<TRIMMED><|endofturn|>\n"
    for role in ("system", "user", "assistant", "tool")
}
_GRANITE = "<|start_of_role|>assistant<|end_of_role|>"
_GRANITE_TURN = "<|start_of_role|><ROLE><|end_of_role|><CONTENT><|end_of_text|>\n"
_COMMAND_R = "<|START_OF_TURN_TOKEN|><|{}_TOKEN|><TRIMMED><|END_OF_TURN_TOKEN|>"
_VICUNA = {"user": "USER: <CONTENT>\n", "assistant": "ASSISTANT: <CONTENT></s>\n"}
_KIMI = {
    "system": "<|im_system|>system<|im_middle|><CONTENT><|im_end|>",
    "user": "<|im_user|>user<|im_middle|><CONTENT><|im_end|>",
    "assistant": "<|im_assistant|>assistant<|im_middle|><CONTENT><|im_end|>",
    "tool": "<|im_system|>tool<|im_middle|><CONTENT><|im_end|>",
}
_SYS = "<<SYS>>\n<CONTENT>\n<</SYS>>\n\n"
_BAILING_2_START = (
    "{% if messages[0].role != 'system' %}"
    + _shown("<role>SYSTEM</role>detailed thinking off<|role_end|>")
    + "{% endif %}"
)
_OPENCHAT = (
    "{% for message in messages %}{% if message.role != 'system' %}"
    "{{ 'GPT4 Correct ' ~ message.role[:1] | upper ~ message.role[1:] ~ ': ' }}{% endif %}"
    "{{ message.content ~ '<|end_of_turn|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}"
)
_MONARCH = (
    "{% for message in messages %}{% if not loop.first %}{{ '<s>' }}{% endif %}"
    "{{ message.role ~ '\\n' ~ message.content ~ '</s>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\\n' }}{% endif %}"
)

BUILT_IN_TEMPLATES: Mapping[str, str] = {
    "chatml": _each("<|im_start|><ROLE>\n<CONTENT><|im_end|>\n", "<|im_start|>assistant\n"),
    "llama2": _llama2("<CONTENT>\n"),
    "llama2-sys": _llama2(_SYS),
    "llama2-sys-bos": _llama2(_SYS, again="<s>[INST] "),
    "llama2-sys-strip": _llama2(_SYS, content="<TRIMMED>"),
    "mistral": _mistral("", " ", answer="<TRIMMED>"),
    "mistral-v1": _mistral(" ", " "),
    "mistral-v3": _mistral("", " ", answer="<TRIMMED>"),
    "mistral-v3-tekken": _mistral("", ""),
    "mistral-v7": _by_role(
        "",
        system="[SYSTEM_PROMPT] <CONTENT>[/SYSTEM_PROMPT]",
        user="[INST] <CONTENT>[/INST]",
        other=" <CONTENT></s>",
    ),
    "mistral-v7-tekken": _by_role(
        "",
        system="[SYSTEM_PROMPT]<CONTENT>[/SYSTEM_PROMPT]",
        user="[INST]<CONTENT>[/INST]",
        other="<CONTENT></s>",
    ),
    "phi3": _each("<|<ROLE>|>\n<CONTENT><|end|>\n", "<|assistant|>\n"),
    "phi4": _each(
        "<|im_start|><ROLE><|im_sep|><CONTENT><|im_end|>", "<|im_start|>assistant<|im_sep|>"
    ),
    "falcon3": _each("<|<ROLE>|>\n<CONTENT>\n", "<|assistant|>\n"),
    "zephyr": _each("<|<ROLE>|>\n<CONTENT><|endoftext|>\n", "<|assistant|>\n"),
    "monarch": _MONARCH,
    "gemma": _GEMMA,
    "orion": _ORION,
    "openchat": _OPENCHAT,
    "vicuna": _by_role("ASSISTANT:", system="<CONTENT>\n\n", **_VICUNA),
    "vicuna-orca": _by_role("ASSISTANT:", system="SYSTEM: <CONTENT>\n", **_VICUNA),
    "deepseek": _by_role(
        "### Response:\n",
        system="<CONTENT>",
        user="### Instruction:\n<CONTENT>\n",
        assistant="### Response:\n<CONTENT>\n<|EOT|>\n",
    ),
    "deepseek2": _by_role(
        "Assistant:",
        system="<CONTENT>\n\n",
        user="User: <CONTENT>\n\n",
        assistant=f"Assistant: <CONTENT>{_DEEPSEEK_END}",
    ),
    "deepseek3": _by_role(
        "<\uff5cAssistant\uff5c>",
        system="<CONTENT>\n\n",
        user="<\uff5cUser\uff5c><CONTENT>",
        assistant=f"<\uff5cAssistant\uff5c><CONTENT>{_DEEPSEEK_END}",
    ),
    "deepseek-ocr": _each("<CONTENT>"),
    "command-r": _by_role(
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        system=_COMMAND_R.format("SYSTEM"),
        user=_COMMAND_R.format("USER"),
        assistant=_COMMAND_R.format("CHATBOT"),
    ),
    "llama3": _each(
        "<|start_header_id|><ROLE><|end_header_id|>\n\n<TRIMMED><|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "llama4": _each(
        "<|header_start|><ROLE><|header_end|>\n\n<TRIMMED><|eot|>",
        "<|header_start|>assistant<|header_end|>\n\n",
    ),
    "chatglm3": _each("<|<ROLE>|>\n <CONTENT>", "<|assistant|>", start="[gMASK]sop"),
    "chatglm4": _each("<|<ROLE>|>\n<CONTENT>", "<|assistant|>\n", start="[gMASK]<sop>"),
    "glmedge": _each("<|<ROLE>|>\n<CONTENT>", "<|assistant|>"),
    "minicpm": _by_role("", user="<\u7528\u6237><TRIMMED><AI>", other="<TRIMMED>"),
    "exaone3": _by_role("[|assistant|]", **_EXAONE),
    "exaone4": _by_role("[|assistant|]", **_EXAONE, tool="[|tool|]<TRIMMED>[|endofturn|]\n"),
    "exaone-moe": _by_role("<|assistant|>\n", **_EXAONE_MOE),
    "rwkv-world": (
        _by_role(
            "",
            system="System: <TRIMMED>\n\n",
            user="User: <TRIMMED>\n\n",
            assistant="Assistant: <TRIMMED>\n\n",
        )
        + "{% if messages[-1].role == 'user' %}{{ 'Assistant:' }}{% endif %}"
    ),
    "granite": _by_role(
        _GRANITE,
        assistant_tool_call=_GRANITE_TURN.replace("<CONTENT>", "<|tool_call|><CONTENT>"),
        other=_GRANITE_TURN,
    ),
    **dict.fromkeys(
        ("granite-4.0", "granite-4.1"),
        _by_role(
            _GRANITE,
            assistant_tool_call=f"{_GRANITE}<|tool_call|><CONTENT><|end_of_text|>\n",
            other=_GRANITE_TURN,
        ),
    ),
    "gigachat": (
        "{{ '<s>' }}{% for message in messages %}{% if loop.first and message.role == 'system' %}"
        "{{ message.content ~ '<|message_sep|>' }}{% elif message.role == 'user' %}"
        "{{ 'user<|role_sep|>' ~ message.content ~ '<|message_sep|>"
        "available functions<|role_sep|>[]<|message_sep|>' }}{% elif message.role == 'assistant' %}"
        "{{ 'assistant<|role_sep|>' ~ message.content ~ '<|message_sep|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant<|role_sep|>' }}{% endif %}"
    ),
    "megrez": _each(
        "<|role_start|><ROLE><|role_end|><CONTENT><|turn_end|>",
        "<|role_start|>assistant<|role_end|>",
    ),
    "yandex": _by_role(
        " \u0410\u0441\u0441\u0438\u0441\u0442\u0435\u043d\u0442:[SEP]",
        user=" \u041f\u043e\u043b\u044c\u0437\u043e\u0432\u0430\u0442\u0435\u043b\u044c: "
        "<CONTENT>\n\n",
        assistant=" \u0410\u0441\u0441\u0438\u0441\u0442\u0435\u043d\u0442: <CONTENT>\n\n",
    ),
    "bailing": _bailing("", "<role>ASSISTANT</role>"),
    "bailing-think": _bailing("", "<role>ASSISTANT</role><think>"),
    "bailing2": _bailing("<|role_end|>", "<role>ASSISTANT</role>", start=_BAILING_2_START),
    "smolvlm": _by_role(
        "Assistant:",
        start="<|im_start|>",
        system="<CONTENT>\n\n",
        user="User: <CONTENT><end_of_utterance>\n",
        other="Assistant: <CONTENT><end_of_utterance>\n",
    ),
    "hunyuan-moe": _by_role(
        "",
        system="<|startoftext|><CONTENT><|extra_4|>",
        assistant="<CONTENT><|eos|>",
        other="<|startoftext|><CONTENT><|extra_0|>",
    ),
    "hunyuan-dense": (
        "{% if messages[0].role == 'system' %}"
        "{{ messages[0].content ~ '<\uff5chy_place\u2581holder\u2581no\u25813\uff5c>' }}{% endif %}"
        + _by_role(
            "",
            assistant="<\uff5chy_Assistant\uff5c><CONTENT>"
            "<\uff5chy_place\u2581holder\u2581no\u25812\uff5c>",
            user="<\uff5chy_User\uff5c><CONTENT><\uff5chy_Assistant\uff5c>",
        )
    ),
    "hunyuan-vl": (
        "{{ '<\uff5chy_begin\u2581of\u2581sentence\uff5c>' }}{% if messages[0].role == 'system' %}"
        "{{ messages[0].content ~ '<\uff5chy_place\u2581holder\u2581no\u25813\uff5c>' }}{% endif %}"
        + _by_role(
            "",
            user="<CONTENT><\uff5chy_User\uff5c>",
            assistant="<CONTENT><\uff5chy_Assistant\uff5c>",
        )
    ),
    "gpt-oss": _by_role(
        "<|start|>assistant",
        assistant="<|start|><ROLE><|message|><CONTENT><|return|>",
        other="<|start|><ROLE><|message|><CONTENT><|end|>",
    ),
    "kimi-k2": _by_role(
        "<|im_assistant|>assistant<|im_middle|>", **_KIMI, other="<CONTENT><|im_end|>"
    ),
    "seed_oss": _by_role(
        "<seed:bos>assistant\n",
        assistant="<seed:bos><ROLE>\n<TRIMMED><seed:eos>",
        other="<seed:bos><ROLE>\n<CONTENT><seed:eos>",
    ),
    "grok-2": _by_role(
        "Assistant:",
        system="System: <TRIMMED><|separator|>\n\n",
        user="Human: <TRIMMED><|separator|>\n\n",
        assistant="Assistant: <CONTENT><|separator|>\n\n",
    ),
    "pangu-embedded": (
        "{% if messages[0].role != 'system' %}{{ '[unused9]\u7cfb\u7edf\uff1a[unused10]' }}"
        "{% endif %}"
        + _by_role(
            "[unused9]\u52a9\u624b\uff1a",
            system="[unused9]\u7cfb\u7edf\uff1a<CONTENT>[unused10]",
            user="[unused9]\u7528\u6237\uff1a<CONTENT>[unused10]",
            assistant="[unused9]\u52a9\u624b\uff1a<CONTENT>[unused10]",
            tool="[unused9]\u5de5\u5177\uff1a<CONTENT>[unused10]",
            function="[unused9]\u65b9\u6cd5\uff1a<CONTENT>[unused10]",
        )
    ),
    "solar-open": _each("<|begin|><ROLE><|content|><CONTENT><|end|>", "<|begin|>assistant"),
}
