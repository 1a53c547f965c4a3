"""Chat templates by name."""

from datetime import datetime

import pytest

from worker.tokenizer.built_in_templates import BUILT_IN_TEMPLATES
from worker.tokenizer.chat_template import ChatTemplate

CHAT = [
    {"role": "system", "content": " Be nice. "},
    {"role": "user", "content": " hello \n"},
    {"role": "assistant", "content": " yes \n"},
    {"role": "user", "content": "more?"},
]


def render(name, messages):
    """The prompt text."""
    source = BUILT_IN_TEMPLATES[name]
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>", now=datetime(2026, 11, 29))
    return template.render(messages).text


@pytest.mark.parametrize("name", BUILT_IN_TEMPLATES)
def test_every_message_is_there_in_order(name):
    """Whatever a template writes around them, the contents of a chat stand in it in order."""
    text = render(name, CHAT)
    places = [
        text.find(message["content"].strip())
        for message in CHAT
        if name != "yandex" or message["role"] != "system"
    ]
    assert -1 not in places
    assert sorted(places) == places


# What llama.cpp's llama_chat_apply_template gives for CHAT.
EXPECTED = {
    "chatml": "<|im_start|>system\n Be nice. <|im_end|>\n<|im_start|>user\n hello \n<|im_end|>\n"
    "<|im_start|>assistant\n yes \n<|im_end|>\n<|im_start|>user\nmore?<|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama2": "[INST]  Be nice. \n hello \n [/INST] yes \n</s>[INST] more? [/INST]",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nBe nice.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nhello<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nyes<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nmore?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma": "<start_of_turn>user\nBe nice.\n\nhello<end_of_turn>\n<start_of_turn>model\n"
    "yes<end_of_turn>\n<start_of_turn>user\nmore?<end_of_turn>\n<start_of_turn>model\n",
    "mistral": "[INST]  Be nice. \n\n hello \n[/INST] yes</s>[INST] more?[/INST]",
    "mistral-v1": " [INST]  Be nice. \n\n hello \n [/INST]  yes \n</s> [INST] more? [/INST]",
    "mistral-v7-tekken": "[SYSTEM_PROMPT] Be nice. [/SYSTEM_PROMPT][INST] hello \n[/INST] yes \n"
    "</s>[INST]more?[/INST]",
    "phi3": "<|system|>\n Be nice. <|end|>\n<|user|>\n hello \n<|end|>\n<|assistant|>\n yes \n"
    "<|end|>\n<|user|>\nmore?<|end|>\n<|assistant|>\n",
    "vicuna": " Be nice. \n\nUSER:  hello \n\nASSISTANT:  yes \n</s>\nUSER: more?\nASSISTANT:",
    "gpt-oss": "<|start|>system<|message|> Be nice. <|end|><|start|>user<|message|> hello \n<|end|>"
    "<|start|>assistant<|message|> yes \n<|return|><|start|>user<|message|>more?<|end|>"
    "<|start|>assistant",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_as_llama_cpp_writes_it(name):
    """Character for character, blanks of the contents included."""
    assert EXPECTED[name] == render(name, CHAT)


def test_gemma_has_no_system_turn():
    """Two system messages stand in front of the next message of the user."""
    chat = [{"role": "system", "content": "a "}, *CHAT]
    assert render("gemma", chat).startswith("<start_of_turn>user\naBe nice.\n\nhello<end_of_turn>")
