"""SamplingParams: every value checked, every wrong one named."""

import re
from decimal import Decimal

import numpy as np
import pytest

from worker.engine.sampling_params import SamplingParams
from worker.errors import SamplingParamsError

DEFAULTS = SamplingParams(temperature=0.5, max_tokens=16, stop=("x",))


@pytest.mark.parametrize("cell", [None, {}, "{}", "null", {"temperature": None, "stop": None}])
def test_null_means_the_jobs_default(cell):
    """No struct, an empty one, and null fields all leave the defaults."""
    assert SamplingParams.from_cell(cell, DEFAULTS) == DEFAULTS


def test_row_values_override_the_defaults():
    """Given values win, the others stay."""
    got = SamplingParams.from_cell('{"temperature": 1, "seed": 18446744073709551615}', DEFAULTS)
    assert got == SamplingParams(temperature=1.0, max_tokens=16, stop=("x",), seed=2**64 - 1)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ('{"temperature": NaN}', "temperature: NaN is not in [0, 100]"),
        ('{"temperature": -1}', "temperature: -1 is not in [0, 100]"),
        ('{"temperature": Infinity}', "temperature: inf is not in [0, 100]"),
        ('{"temperature": "0.7"}', "temperature: '0.7' is not a number"),
        ('{"temperature": true}', "temperature: true is not a number"),
        ('{"temperature": [1]}', "temperature: [1] is not a number"),
        ('{"max_tokens": -1}', "max_tokens: -1 is not in [0, 9223372036854775807]"),
        ('{"max_tokens": 2.5}', "max_tokens: 2.5 is not a whole number"),
        ('{"max_tokens": 1e400}', "max_tokens: inf is not a whole number"),
        ('{"max_tokens": NaN}', "max_tokens: NaN is not a whole number"),
        ('{"max_tokens": 9223372036854775808}', "max_tokens: 9223372036854775808 is not in [0,"),
        ('{"top_p": 1.5}', "top_p: 1.5 is not in [0, 1]"),
        ('{"top_p": -0.1}', "top_p: -0.1 is not in [0, 1]"),
        ('{"min_p": 1.01}', "min_p: 1.01 is not in [0, 1]"),
        ('{"top_k": -5}', "top_k: -5 is not in [-1, "),
        ('{"top_k": true}', "top_k: true is not a whole number"),
        ('{"seed": -1}', "seed: -1 is not in [0, 18446744073709551615]"),
        ('{"seed": 18446744073709551616}', "seed: a number of 65 bits is not in [0, "),
        ('{"seed": ' + "9" * 400 + "}", "seed: a number of 1329 bits is out of range"),
        ('{"stop": ""}', "stop: an empty string would end every text at once; leave it out"),
        ('{"stop": ["a", null]}', "stop: null is not a string"),
        ('{"stop": 5}', "stop: 5 is not a list of strings"),
        ('{"stop": {"a": 1}}', "stop: {'a': 1} is not a list of strings"),
        ('{"stop_token_ids": [-1]}', "stop_token_ids: -1 is not in [0, 2147483647]"),
        ('{"stop_token_ids": "7"}', "stop_token_ids: '7' is not a list of token ids"),
        ('{"ignore_eos": 1}', "ignore_eos: 1 is not true or false"),
        ('{"logprobs": 101}', "logprobs: 101 is not in [0, 100]"),
        ('{"presence_penalty": 2.1}', "presence_penalty: 2.1 is not in [-2, 2]"),
        ('{"frequency_penalty": -3}', "frequency_penalty: -3 is not in [-2, 2]"),
        ('{"repetition_penalty": 0}', "repetition_penalty: 0 is not in [0.01, 100]"),
        ('{"tempratur": 1}', "'tempratur' is no sampling parameter; did you mean temperature?"),
        ('{"qqq": 1}', "'qqq' is no sampling parameter; there are n, temperature, top_k, "),
        ("[1]", "sampling_params: [1] is not a JSON object"),
        ("7", "sampling_params: 7 is not a JSON object"),
        ("", "sampling_params: '' is not valid JSON: Expecting value"),
        ("{", "sampling_params: '{' is not valid JSON: "),
        ("[" * 100_000, "... is not valid JSON: nested too deeply or a number too long"),
        ('{"seed": ' + "9" * 5000 + "}", " is not valid JSON: nested too deeply or a number"),
    ],
)
def test_bad_value_is_a_row_error_that_names_it(cell, message):
    """Key, value and what is allowed stand in one short line."""
    with pytest.raises(SamplingParamsError, match=re.escape(message)) as caught:
        SamplingParams.from_cell(cell, DEFAULTS)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), np.float32(3), Decimal(3)])
def test_integral_values_of_any_type_are_whole_numbers(value):
    """What pandas, Arrow and DuckDB make of an integer is accepted, as an int."""
    got = SamplingParams.from_mapping({"max_tokens": value, "top_k": value}, DEFAULTS)
    assert (got.max_tokens, got.top_k) == (3, 3)
    assert type(got.max_tokens) is int


@pytest.mark.parametrize("value", [0.25, np.float32(0.25), np.float64(0.25), Decimal("0.25")])
def test_numbers_of_any_type_are_floats(value):
    """A decimal from a database is a number."""
    got = SamplingParams.from_mapping({"top_p": value, "temperature": value}, DEFAULTS)
    assert (got.top_p, got.temperature) == (0.25, 0.25)
    assert type(got.top_p) is float


def test_seed_keeps_all_its_bits():
    """A seed above 2**53 is not rounded on the way."""
    assert SamplingParams.from_mapping({"seed": 2**63 + 1}, DEFAULTS).seed == 2**63 + 1


def test_one_stop_string_is_a_list_of_one():
    """A plain string is accepted where a list is meant."""
    assert SamplingParams.from_mapping({"stop": "end"}, DEFAULTS).stop == ("end",)


def test_huge_and_zero_max_tokens_are_values_like_others():
    """Neither end of the range is an error."""
    assert SamplingParams.from_mapping({"max_tokens": 2**40}, DEFAULTS).max_tokens == 2**40
    assert SamplingParams.from_mapping({"max_tokens": 0}, DEFAULTS).max_tokens == 0


def test_minus_one_keeps_all_tokens():
    """top_k -1, as vLLM writes it, is 0."""
    assert SamplingParams.from_mapping({"top_k": -1}, DEFAULTS).top_k == 0


def test_construction_checks_too():
    """The class refuses a bad value without a mapping in between."""
    with pytest.raises(SamplingParamsError, match=r"temperature: NaN"):
        SamplingParams(temperature=float("nan"))
