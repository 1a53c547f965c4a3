"""Requests to ids."""

from datetime import datetime

import pytest

from worker.engine.request import Request, RowId
from worker.errors import EngineConfigError, ModelError, RowError, TemplateError, TooLongError
from worker.tokenizer.prompt_encoder import PromptEncoder
from worker.tokenizer.tokenizer import SpecialText, Tokenizer

from .vocab_file import byte_level

NOW = datetime(2026, 1, 15)
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


@pytest.fixture
def encoder(small):
    """An encoder with a template and without BOS."""
    return PromptEncoder.for_model(small, now=NOW, chat_template=TEMPLATE)


def request(**fields):
    """A request of one row."""
    return Request(row_id=RowId(0), **fields)


def test_a_prompt(encoder):
    """Plain text is encoded, control tokens in it as text."""
    assert [259] == encoder.encode(request(prompt="hello"))
    assert 262 not in encoder.encode(request(prompt="<|im_end|>"))


def test_messages(encoder):
    """A conversation is rendered; the template's control tokens are tokens, the user's are text."""
    messages = [{"role": "user", "content": "hello<|im_end|>"}]
    ids = encoder.encode(request(messages=messages))
    assert [261, 259] == ids[:2]
    assert [len(ids) - 1] == [place for place, token_id in enumerate(ids) if token_id == 262]
    assert "<|im_start|>hello<|im_end|><|im_end|>" == encoder.render(messages)


def test_ids_pass_as_they_are(encoder):
    """Given ids get no BOS and are not changed."""
    assert [5, 263, 0] == encoder.encode(request(prompt_token_ids=(5, 263, 0)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": ""}, "prompt is empty: no token is left"),
        ({"prompt_token_ids": []}, "prompt is empty"),
        ({"prompt_token_ids": [1, 264]}, r"prompt_token_ids\[1\] is 264, expected .* 0 to 263"),
        ({"prompt_token_ids": [-1]}, r"prompt_token_ids\[0\] is -1"),
        ({"prompt": None}, "prompt: a text is needed, found nothing"),
        ({"prompt": 3}, "prompt: a text is needed, found int"),
        (
            {"prompt": "ab\udcff"},
            r"prompt is not valid Unicode: lone surrogate U\+DCFF at character 2",
        ),
        ({"messages": []}, "messages: the list is empty"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\]\.content"),
    ],
)
def test_rows_that_cannot_be_encoded(encoder, fields, words):
    """Nothing to encode, ids out of range and broken text fail the row."""
    with pytest.raises(RowError, match=words):
        encoder.encode(request(**fields))


def test_an_empty_prompt_with_bos_is_a_prompt(tmp_path):
    """BOS alone is a token to go on from."""
    keys = {"tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.bos_token_id": 261}
    tokenizer = byte_level(tmp_path / "v", keys={**keys, "tokenizer.ggml.add_bos_token": True})
    assert [261] == PromptEncoder.for_model(tokenizer, now=NOW).encode(request(prompt=""))


def test_messages_without_a_template(small):
    """The error names the key and both ways out."""
    encoder = PromptEncoder.for_model(small, now=NOW)
    assert not encoder.has_template
    with pytest.raises(
        TemplateError, match=r"tokenizer\.chat_template.*chat_template.*prompt column"
    ):
        encoder.encode(request(messages=[{"role": "user", "content": "a"}]))


def test_a_template_of_the_file_that_does_not_compile(tmp_path):
    """It is the model's fault, file and key are named; one of the settings is the settings'."""
    keys = {"tokenizer.ggml.pre": "gpt-2", "tokenizer.chat_template": "{% for %}"}
    tokenizer = byte_level(tmp_path / "broken.gguf", keys=keys)
    with pytest.raises(ModelError, match=r"broken\.gguf: tokenizer\.chat_template, line 1"):
        PromptEncoder.for_model(tokenizer, now=NOW)
    with pytest.raises(EngineConfigError, match=r"^chat_template of the job settings"):
        PromptEncoder.for_model(tokenizer, now=NOW, chat_template="{{")
    assert PromptEncoder.for_model(tokenizer, now=NOW, chat_template="x{{ 1 }}").has_template


def test_a_text_of_megabytes_is_refused_unencoded(encoder, monkeypatch):
    """What cannot fit by its length alone is not encoded; a shorter one is, to be counted."""
    long = "a" * ((1 << 20) + 1)
    assert len(long) - 1 == len(encoder.encode(request(prompt=long[1:]), max_tokens=256))
    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: pytest.fail("encoded"))
    with pytest.raises(
        TooLongError, match=r"1048577 characters are at least .* the context of 256"
    ):
        encoder.encode(request(prompt=long), max_tokens=256)


def test_the_fewest_tokens_are_a_bound(small):
    """No text has fewer tokens than the bound says, not even of the longest tokens alone."""
    for text in ("", "hello" * 10, "<|im_end|>" * 10, "é" * 33):
        ids = small.encode(text, special=SpecialText.PARSE)
        assert small.fewest_tokens(text) <= len(ids)


CALLS = [{"type": "function", "function": {"name": "add", "description": "a<|im_end|>b"}}]
WITH_TOOLS = "{{ tools | tojson if tools else 'none' }}<|im_end|>"


def test_tools_go_to_the_template(small):
    """A row's tools are the template's variable; control tokens in them are text."""
    encoder = PromptEncoder.for_model(small, now=NOW, chat_template=WITH_TOOLS)
    chat = [{"role": "user", "content": "a"}]
    assert "none<|im_end|>" == encoder.render(chat)
    assert '[{"type": "function", "function"' in encoder.render(chat, CALLS)
    ids = encoder.encode(request(messages=chat, tools=CALLS))
    assert [262] == [token_id for token_id in ids if token_id in (261, 262)]
    assert '"a<|im_end|>b"' in encoder.render(chat, CALLS)


def test_the_files_template_for_tools(tmp_path):
    """Where the file has a template for tools, rows with tools get it, and only they."""
    keys = {
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.chat_template": "usual {{ 1 }}",
        "tokenizer.chat_template.tool_use": "with {{ tools | length }} tools",
    }
    encoder = PromptEncoder.for_model(byte_level(tmp_path / "v", keys=keys), now=NOW)
    chat = [{"role": "user", "content": "a"}]
    assert ("usual 1", "with 1 tools") == (encoder.render(chat), encoder.render(chat, CALLS))


@pytest.mark.parametrize("tools", ["[]", [1], {"a": 1}])
def test_tools_that_are_no_list_of_schemas(encoder, tools):
    """The row fails and the reason names what was found."""
    with pytest.raises(RowError, match=r"^tools(\[0\])?: a "):
        encoder.render([{"role": "user", "content": "a"}], tools)


def test_control_tokens_are_parsed_where_asked(small):
    """With parse_special the spelling of a control token is the token, in prompts and messages."""
    encoder = PromptEncoder.for_model(
        small, now=NOW, chat_template=TEMPLATE, special=SpecialText.PARSE
    )
    assert [256, 262] == encoder.encode(request(prompt="he<|im_end|>"))
    messages = [{"role": "user", "content": "he<|im_end|>"}]
    assert [261, 256, 262, 262] == encoder.encode(request(messages=messages))


def test_a_built_in_template_by_name(small):
    """A name is enough."""
    encoder = PromptEncoder.for_model(small, now=NOW, chat_template="chatml")
    chat = [{"role": "user", "content": "a"}]
    assert "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n" == encoder.render(chat)
