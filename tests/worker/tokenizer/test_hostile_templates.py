"""Templates that would loop for ever or eat all memory."""

import resource
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from worker.errors import ModelError, RowError

from .test_chat_template import render

GROW = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}"
LOOP, INNER, END = "{% for i in range(100000) %}", "{% for j in range(100000) %}", "{% endfor %}"
LAUGHS = "{% set a = ['x' * 10] * 1000 %}{% set b = [a] * 1000 %}{% set c = [b] * 1000 %}"


def grow(start, step, use=""):
    """A value that doubles sixty times."""
    return GROW.replace("START", start).replace("STEP", step) + use


# range(0, 100000 * prime, prime) without long numbers in the source
COLLIDING = "{% set prime = 2 ** 61 - 1 %}{% set NUMBERS = range(0, 99999 * prime, prime) %}"
HOSTILE = {
    "loops in loops": LOOP + INNER + END + END,
    "loop conditions": LOOP + "{% for j in range(100000) if false %}" + END + END,
    "recursive loop": "{% for i in range(100000) recursive %}{{ loop(range(100000)) }}" + END,
    "lazy filters": LOOP + "{{ range(100000) | map('string') | list | length }}" + END,
    "lazy tests": LOOP + "{{ range(100000) | select('none') | list }}" + END,
    "lazy attributes": LOOP + "{{ range(100000) | map(attribute='real') | sum }}" + END,
    "macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}"
    "{% endif %}{% endmacro %}{{ f(60) }}",
    "block in itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "literal text": LOOP + "x" * 10_000 + END,
    "literal text in a block": "{% set y %}{% for i in range(100000) %}"
    + "x" * 10_000
    + "{% endfor %}{% endset %}",
    "text times": "{{ 'a' * 10**9 }}",
    "text times, unused": "{% set y = 10**9 * 'a' %}",
    "list times": "{% set y = [1] * 10**9 %}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "doubled text": grow("'aa'", "ns.x ~ ns.x"),
    "added text": grow("'aa'", "ns.x + ns.x"),
    "added lists": grow("[1]", "ns.x + ns.x"),
    "squared": grow("10", "ns.x * ns.x"),
    "printed pairs": grow("(1,)", "(ns.x, ns.x)", "{{ ns.x }}"),
    "compared pairs": grow("(1,)", "(ns.x, ns.x)", "{{ ns.x == (ns.x, 1) }}"),
    "hashed pairs": grow("(1,)", "(ns.x, ns.x)", "{% set d = {ns.x: 1} %}"),
    "looked-up pairs": grow("(1,)", "(ns.x, ns.x)", "{{ {}[ns.x] }}"),
    "formatted": grow("'aa'", "'{0}{0}'.format(ns.x)"),
    "formatted by %": grow("'aa'", "'%s%s' % (ns.x, ns.x)"),
    "laughs": LAUGHS + "{{ c }}",
    "laughs as JSON": LAUGHS + "{{ c | tojson }}",
    "laughs as text": LAUGHS + "{{ c | string | length }}",
    "joined": "{% set a = 'a' * 100000 %}{{ a.join(a) }}",
    "joined by a filter": "{% set a = 'a' * 100000 %}{{ a | join(a) }}",
    "joined references": "{% set a = 'a' * 1000000 %}{{ ([a] * 100000) | join }}",
    "replaced": "{% set a = 'a' * 100000 %}{{ a.replace('a', a) }}",
    "replaced by a filter": "{% set a = 'a' * 100000 %}{{ a | replace('a', a) }}",
    "translated": "{{ 'a'.translate({97: 'a' * 1000}) }}",
    "tabs": "{{ '\t'.expandtabs(10**10) }}",
    "wide": "{{ 'a'.ljust(10**10) }}",
    "wide by a filter": "{{ 'a' | center(10**10) }}",
    "wide format": "{{ '{:10000000000}'.format(1) }}",
    "wide format by argument": "{{ '{:{}}'.format(1, 10**10) }}",
    "wide format by a mapping": "{{ '{a:{b}}'.format_map({'a': 1, 'b': 10**10}) }}",
    "wide format by an item": "{{ '{:{[0][0]}}'.format(1, [[10**10]]) }}",
    "wide format by an attribute": "{{ '{:{.x}}'.format(1, namespace(x=10**10)) }}",
    "divided": "{% set a = 10**1000000 %}{% set b = 10**500000 %}{{ a // b }}",
    "divided tests": "{% set a = 10**1000000 %}{{ a is divisibleby(10**500000) }}",
    "wide %": "{{ '%10000000000d' % 1 }}",
    "wide % by argument": "{{ '%*d' % (10**10, 1) }}",
    "wide format filter": "{{ '%10000000000d' | format(1) }}",
    "indented JSON": "{{ [1, [2]] | tojson(indent=10**10) }}",
    "indented": "{{ 'a\nb' | indent(10**10) }}",
    "batches": "{{ [1] | batch(10**10, 'x') | list }}",
    "slices": "{{ [1] | slice(10**10) | list }}",
    "summed lists": "{{ ([[1]] * 100000) | sum(start=[]) | length }}",
    "kept copies": "{% set ns = namespace(l=[]) %}{% set a = 'a' * 1000000 %}"
    + LOOP
    + "{% set ns.l = ns.l + [a[1:]] %}"
    + END,
    "searches": "{% set a = 'a' * 1000000 %}" + LOOP + "{% if 'ab' in a %}{% endif %}" + END,
    "pretty": "{% set a = 'a b ' * 100000 %}" + LOOP + "{{ a | pprint }}" + END,
    "links": "{% set a = 'a.b ' * 100000 %}" + LOOP + "{{ a | urlize }}" + END,
    "groups": LOOP + "{{ range(100000) | list | groupby('real') }}" + END,
    "unique": LOOP + "{{ range(100000) | unique | list | length }}" + END,
    "sorted": LOOP + "{{ range(100000) | sort(reverse=true) | first }}" + END,
    "wrapped": "{% set a = 'a b ' * 100000 %}" + LOOP + "{{ a | wordwrap(1) }}" + END,
    "wrapped with a long text": "{{ ('a ' * 50000) | wordwrap(1, wrapstring='x' * 20000) }}",
    "stripped of many letters": "{{ ('\u4e00' * 500000).strip('\u4e01' * 500000 ~ '\u4e00') }}",
    "trimmed of many letters": "{{ ('\u4e00' * 500000) | trim('\u4e01' * 500000 ~ '\u4e00') }}",
    "searched from the right": "{% set a = 'a' * 250000 %}{{ (a * 4).rfind(a ~ 'b' ~ a) }}",
    "cut from the right": "{% set a = 'a' * 250000 %}{{ (a * 4).rsplit(a ~ 'b' ~ a) | length }}",
    "wrapped, one word": "{{ ('a' * 800000) | wordwrap(1) | length }}",
    "links that end twice": "{{ (')' * 500000 ~ 'x)') | urlize | length }}",
    "links with a long target": "{{ ('http://a.com ' * 10000) | urlize(target='x' * 20000) }}",
    "long separators": "{{ (range(50000) | list) | tojson(separators=('x' * 50000, 'y')) }}",
    "long bytes": "{{ (1).to_bytes(900000000, 'big') | length }}",
    "long bytes by a filter": "{{ ([1] | map(attribute='to_bytes') | first)(900000000, 'big') }}",
    "rounded": "{{ 1 | round(4000000, 'ceil') }}",
    "numbers of one hash": COLLIDING + "{{ NUMBERS | unique | list }}",
    "keys of one hash": COLLIDING + "{{ {}.fromkeys(NUMBERS) }}",
    "pairs of one hash": COLLIDING + "{{ dict(NUMBERS | batch(2) | list) }}",
    "sums of one hash": "{% set ns = namespace(x=0) %}{% for i in range(99) %}"
    "{% set ns.x = [ns.x, 1152921504606846975] | sum %}{% endfor %}",
    "read numbers": "{{ '99999999999999999999' | int }}",
    "without tags": "{% set a = '<' * 100000 %}" + LOOP + "{{ a | striptags }}" + END,
    "range": "{% for i in range(10**9) %}x" + END,
}


DEEP = (
    "{% set ns = namespace(x=(1,)) %}{% for i in range(10000) %}{% set ns.x = "
    + "(" * 40
    + "ns.x"
    + ",)" * 40
    + " %}{% endfor %}"
)
CRASHING = {
    "a deep key": DEEP + "{{ {ns.x: 1} | length }}",
    "a deep key looked up": DEEP + "{{ {}[ns.x] }}",
    "a deep key looked for": DEEP + "{{ ns.x in {} }}",
    "lazy filters in one another": "{% set ns = namespace(x=[1]) %}{% for i in range(60000) %}"
    "{% set ns.x = ns.x | batch(1) %}{% endfor %}",
    "lazy options in one another": "{% set ns = namespace(x=[1]) %}{% for i in range(60000) %}"
    "{% set ns.x = [1] | batch(2, ns.x) %}{% endfor %}",
}
"""Templates that would overflow the stack of the process."""


@pytest.mark.parametrize("name", CRASHING)
def test_is_stopped_before_the_stack_is_full(name):
    """A crash would take the rows of other users along."""
    with pytest.raises(RowError, match="chat template: stopped"):
        render(CRASHING[name])


def peak_memory():
    """The most bytes this process ever held."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


@pytest.mark.parametrize("name", HOSTILE)
def test_is_stopped(name):
    """The template is stopped before it costs much time or memory, and the row says why."""
    before = peak_memory()
    with pytest.raises(RowError, match=r"^chat template"):
        render(HOSTILE[name])
    assert peak_memory() - before < 200 * 2**20


def test_the_same_every_time_and_in_any_thread():
    """The bound counts work, not seconds: the error is the same in another thread."""
    with pytest.raises(RowError) as here:
        render(HOSTILE["loops in loops"])
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(render, HOSTILE["loops in loops"]).exception()
    assert str(here.value) == str(there)


def test_long_conversations_have_a_budget_to_match():
    """A thousand messages of two thousand characters are rendered by a loop that looks at each."""
    source = (
        "{% for m in messages %}{% if m.role == 'user' and 'zz' not in m.content %}"
        "{{ m.content | trim }}{{ (messages | length) - loop.index0 }}{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "ab" * 1000}] * 1000
    assert len(render(source, messages).text) > 2_000_000


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 30_000 + "1" + ")" * 30_000 + " }}",
        "{% if 1 %}" * 3_000 + "{% endif %}" * 3_000,
        "{{ " + "1+" * 30_000 + "1 }}",
        "{{ a" + ".b" * 30_000 + " }}",
        "{{ a" + "|e" * 30_000 + " }}",
        "{% for i in [1] %}" * 100 + "{% endfor %}" * 100,
        "{{ 99999999999999999999 }}",
        "{{ {" + ",".join(f"{i * (2**61 - 1)}:0" for i in range(2000)) + "} }}",
    ],
)
def test_sources_that_no_compiler_takes(source):
    """Nesting without end and long numbers are refused as no template, without a crash."""
    with pytest.raises(ModelError, match="does not compile"):
        render(source)


def test_dense_sources_compile_in_bounded_memory():
    """The longest source that is taken may be nothing but tags."""
    before = peak_memory()
    assert "" == render("{{ x }}" * ((1 << 16) // 7)).text
    assert peak_memory() - before < 200 * 2**20


UNSAFE = [
    "{{ '' | attr('__class__') }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ [''] | sort(attribute='__class__') }}",
    "{{ [''] | groupby('__class__') }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{0[__class__]}'.format({}) }}",
    "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__self__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{% macro f() %}{% endmacro %}{{ f._func }}",
    "{{ (messages | map('upper')).gi_frame }}",
    "{% for i in [1] %}{{ loop._iterator }}{% endfor %}",
    "{{ (messages | attr('append'))(1) }}",
    "{{ (messages | map(attribute='update') | first)({'content': 'x'}) }}",
    "{{ messages.pop() }}",
]


@pytest.mark.parametrize("source", UNSAFE)
def test_attributes_out_of_reach(source):
    """Neither Python's insides nor the conversation can be reached, by no filter or format."""
    chat = [{"role": "user", "content": "a"}]
    with pytest.raises(RowError, match="unsafe access"):
        render(source, chat)
    assert [{"role": "user", "content": "a"}] == chat


@pytest.mark.parametrize(
    "source",
    ["{% include '/etc/passwd' %}", "{% import 'os' as os %}x", "{% extends 'x' %}"],
)
def test_no_files(source):
    """There is nothing to load from."""
    with pytest.raises(RowError, match="no loader"):
        render(source)
