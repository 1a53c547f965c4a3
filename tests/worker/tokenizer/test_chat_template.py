"""Rendering of chat templates."""

import hashlib
import json
from datetime import datetime

import pytest

from worker.errors import EngineConfigError, ModelError, RowError, TemplateError
from worker.tokenizer.chat_template import ChatTemplate

NOW = datetime(2026, 1, 15, 12)
USER = [{"role": "user", "content": "hi"}]
FILES = (
    "HuggingFaceTB-SmolLM3-3B.jinja",
    "Qwen-Qwen2.5-7B-Instruct.jinja",
    "Qwen-Qwen3-0.6B.jinja",
    "google-gemma-2-2b-it.jinja",
    "ibm-granite-granite-3.3-2B-Instruct.jinja",
    "meta-llama-Llama-3.2-3B-Instruct.jinja",
)


def render(source, messages=USER, **arguments):
    """Render with neither BOS nor EOS."""
    settings = {"bos_token": None, "eos_token": None, "now": NOW, **arguments}
    return ChatTemplate(source, **settings).render(messages)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", ["single", "multi", "edge"])
def test_real_templates_as_transformers_renders_them(data, file, name):
    """Six published templates give exactly the reference text, or refuse with the same words."""
    reference = json.loads((data / "templates" / "expected.json").read_text())
    (entry,) = (entry for entry in reference["templates"] if entry["file"] == file)
    source = (data / "templates" / file).read_bytes()
    assert entry["sha256"] == hashlib.sha256(source).hexdigest()
    tokens = {key: entry[key] for key in ("bos_token", "eos_token")}
    messages, expected = reference["conversations"][name], entry["expected"][name]
    if "error" in expected:
        with pytest.raises(RowError, match="chat template: System role not supported"):
            render(source.decode(), messages, **tokens)
    else:
        assert expected["rendered"] == render(source.decode(), messages, **tokens).text


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("{{ x | tojson }}", '{"b": "é<>&\'", "a": [1, 2]}'),
        ("{{ x | tojson(ensure_ascii=true) }}", '{"b": "\\u00e9<>&\'", "a": [1, 2]}'),
        ("{{ x.a | tojson(indent=2) }}", "[\n  1,\n  2\n]"),
        ("{{ x | tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":[1,2],"b":"é<>&\'"}'),
        ("{% for i in x.a %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("{% generation %}{{ x.a[0] }}{% endgeneration %}!", "1!"),
        ("{{ strftime_now('%Y-%m-%d') }}", "2026-01-15"),
        ("{{ tools is none }} {{ documents is none }}", "True True"),
        ("{{ add_generation_prompt }}", "True"),
        ("{{ bos_token is defined }}", "False"),
        ("{{ 1 ~ 'a' ~ none ~ nothing }}", "1aNone"),
        (
            "{% set ns = namespace(n=0) %}{% for i in x.a %}{% set ns.n = ns.n + i %}{% endfor %}"
            "{{ ns.n }}{{ ns }}",
            "3<namespace>",
        ),
        ("{{ x.a[::-1] }}{{ 'abc'[1:] }}", "[2, 1]bc"),
        ("{{ x.items() | list | length }}{{ x | length }}{{ 'b' in x }}", "22True"),
        (
            "{% for i in x.a if i > 1 %}{{ i }}{{ loop.first }}{{ loop.length }}{% endfor %}",
            "2True1",
        ),
        ("{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m('q') }}", "<q>"),
        ("{% call(v) w() %}{{ v }}!{% endcall %}", "z!"),
        ("{{ x.a | map('string') | join('-') }}{{ 'ab' | upper | replace('A', 'c') }}", "1-2cB"),
        ("{{ '%s-%d' % ('a', 2) }}{{ '{:>3}'.format('x') }}{{ x.a | sum }}", "a-2  x3"),
    ],
)
def test_what_templates_use(expression, expected):
    """Filters, loops, macros, slices and operators do what they do in transformers' sandbox."""
    source = "{% macro w() %}{{ caller('z') }}{% endmacro %}" + expression
    assert expected == render(source, kwargs={"x": {"b": "é<>&'", "a": [1, 2]}}).text


def test_blocks_take_no_space():
    """A line break after a tag and blanks before one do not count; the last line break does not."""
    assert "a\n b\n" == render("{% if true %}\na\n    {% endif %}\n b\n\n").text


def test_template_variables_of_the_user():
    """The user's variables reach the template; those that are tokenmill's are refused."""
    assert "False" == render("{{ enable_thinking }}", kwargs={"enable_thinking": False}).text
    with pytest.raises(EngineConfigError, match="chat_template_kwargs: messages"):
        render("", kwargs={"messages": []})


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}",
        "{{ x | nosuchfilter }}",
        "{% nosuchtag %}",
        "{{ 'a' | random }}",
        "{{ " + "(" * 5000 + ")" * 5000 + " }}",
        "{% for a in b %}" * 30 + "{% endfor %}" * 30,
        "x" * (1 << 16) + "y",
    ],
)
def test_a_template_that_does_not_compile(source):
    """Compiling fails with file and key, whatever the reason."""
    with pytest.raises(ModelError, match=r"m\.gguf: tokenizer\.chat_template"):
        render(source, origin="m.gguf: tokenizer.chat_template")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('Only  one\nuser') }}", "^chat template: Only one user$"),
        ("{{ raise_exception('x' * 5000) }}", r"^chat template: x{1000}\.\.\.$"),
        ("{{ nothing.more }}", "^chat template error: UndefinedError: 'nothing' is undefined$"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages.append(1) }}", "refused, unsafe access: access to attribute 'append'"),
        ("{{ messages[0].update(a=1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{{ raise_exception.__globals__ }}", "unsafe"),
        ("{% include 'other' %}", "TypeError"),
        ("{{ namespace.__init__ }}", "unsafe"),
        ("{{ ('{0.__class__}'.format(1)) }}", "unsafe"),
    ],
)
def test_errors_are_the_rows(source, words):
    """Whatever a template raises becomes the row's error, in one short line."""
    with pytest.raises(TemplateError, match=words):
        render(source)


def test_errors_hold_no_addresses():
    """Nothing in an error depends on the run."""
    with pytest.raises(RowError) as caught:
        render("{{ raise_exception(cycler(1)) }}")
    assert "0x" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("{{ messages[0].items }}", "builtin_function_or_method"),
        ("{{ messages | map(attribute='role') }}", "generator"),
        ("{{ 'a' ~ raise_exception }}", "function"),
        ("{{ cycler(1) }}", "Cycler"),
    ],
)
def test_prompts_hold_no_addresses(source, kind):
    """What would print as an address, another one in every run, fails the row."""
    with pytest.raises(RowError, match=rf"a {kind} cannot be printed; is a call missing\?$"):
        render(source)


def test_text_that_looks_like_an_address_is_text():
    """Messages may speak of addresses, also where a list or the items of a message are printed."""
    messages = [{"role": "user", "content": "<x at 0x1f>"}]
    source = "{{ messages[0].content ~ messages }}{{ messages[0].values() }}"
    assert 3 == render(source, messages).text.count("<x at 0x1f>")


def test_messages_are_copied():
    """What a template sees is a copy; the user's messages stay as they are."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}], "name": None}]
    assert "a" == render("{{ messages[0].content }}{{ messages[0].name }}", messages).text
    assert [{"role": "user", "content": [{"type": "text", "text": "a"}], "name": None}] == messages
