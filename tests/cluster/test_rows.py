import json

import pyarrow as pa
import pytest

from cluster.dataset import InputDataset
from cluster.input_columns import InputColumns
from cluster.plan import CuttingRule, cut_shards
from cluster.reader import read_requests
from cluster.rows import requests_of
from worker.engine.completion import Completion
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams
from worker.errors import ErrorKind

DEFAULTS = SamplingParams(max_tokens=16)


def rows_of_case(data, case):
    """All rows of a case's input, each a Request or a failed Completion."""
    dataset = InputDataset.open(str(data / "cases" / case / "rows.parquet"), InputColumns())
    rule = CuttingRule(1000, 1 << 30, 1000)
    (shard,) = cut_shards(read_requests(dataset), rule, [range(dataset.num_rows)])
    return list(requests_of(shard.payload, shard.first_row, DEFAULTS))


def rows_of(defaults=DEFAULTS, max_n=1, **columns):
    """Rows of a batch as the reader ships it: text as bytes."""
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return list(requests_of(bytes(sink.getvalue()), 7, defaults, max_n))


def text(*values):
    """A text column as the reader ships it."""
    return pa.array([None if v is None else v.encode() for v in values], pa.large_binary())


def errors(rows):
    """Row index to error of those that failed."""
    return {i: row.error for i, row in enumerate(rows) if isinstance(row, Completion)}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("401-null-prompts", {1: "prompt is null", 3: "prompt is null"}),
        ("407-dictionary-columns", {3: "prompt is null"}),
        (
            "219-invalid-utf8-in-string-column",
            {1: "prompt is not valid UTF-8", 3: "prompt is not valid UTF-8"},
        ),
    ],
)
def test_a_bad_prompt_fails_its_row_alone(data, case, expected):
    """Null and invalid UTF-8 are errors of their rows; every other row is a request."""
    assert expected == errors(rows_of_case(data, case))


def test_an_error_has_a_kind():
    """By what is wrong: the row's own columns, or the sampling parameters beside them."""
    rows = rows_of(
        prompt=text("a", None, "b", "c"),
        sampling_params=text(None, None, '{"top_p": 2}', '{"n": 2}'),
    )
    kinds = [getattr(row, "error_kind", None) for row in rows]
    expected = [None, ErrorKind.INPUT, ErrorKind.SAMPLING_PARAMS, ErrorKind.SAMPLING_PARAMS]
    assert expected == kinds


def test_an_empty_prompt_is_a_prompt(data):
    """An empty string is not null."""
    first, second = rows_of_case(data, "403-empty-prompt-with-bos")
    assert ("", "is it?") == (first.prompt, second.prompt)


def test_messages_as_json_fail_one_by_one(data):
    """Broken JSON says where, other values say what is needed; sound rows are requests."""
    found = rows_of_case(data, "409-messages-as-json")
    expected = {
        1: "messages: invalid JSON at position 29: Unterminated string starting at",
        2: "messages: invalid JSON at position 0: ",
        3: "messages: a list is needed, found an object",
        4: "messages is null",
        5: "messages: invalid JSON at position 0: ",
    }
    failures = errors(found)
    assert list(expected) == list(failures)
    assert {} == {i: failures[i] for i in expected if not failures[i].startswith(expected[i])}
    assert isinstance(found[0], Request)
    assert "user" == found[0].messages[0]["role"]


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("[]", "messages: the list is empty"),
        ('["hi"]', "messages: an object is needed at 0, found a string"),
        (
            '[{"role": "user", "content": "x"}, null]',
            "messages: an object is needed at 1, found null",
        ),
        ('[{"content": NaN}]', "messages: invalid JSON: NaN is no JSON number"),
        (
            '[{"content": 1e999}]',
            "messages: invalid JSON: Out of range float values are not JSON compliant",
        ),
        ('[{"content": "\\ud800"}]', "messages: invalid JSON: half of a surrogate pair"),
        ("[" * 100_000, "messages: invalid JSON: nested too deeply"),
        ("12", "messages: a list is needed, found a number"),
    ],
)
def test_odd_messages_are_row_errors(cell, error):
    """Whatever stands in a cell, it fails its own row with a reason."""
    assert {0: error} == errors(rows_of(messages=text(cell)))


def test_a_number_of_many_digits_is_a_row_error():
    """Python refuses to convert very long numbers; the row says so."""
    (error,) = errors(rows_of(messages=text(f'[{{"n": {"9" * 5000}}}]'))).values()
    assert error.startswith("messages: invalid JSON: ")


def test_null_fields_of_message_structs_are_dropped():
    """Arrow gives every struct every field; a template must see only what the row has."""
    message = [
        {"role": "user", "content": [{"type": "text", "text": "x", "url": None}], "name": None}
    ]
    (row,) = rows_of(messages=pa.array([message]))
    assert [{"role": "user", "content": [{"type": "text", "text": "x"}]}] == row.messages


def test_nulls_in_json_are_the_users():
    """JSON has no fields that a row did not write; an argument may well be null."""
    cell = '[{"role": "tool", "content": "x", "calls": [{"unit": null}]}]'
    (row,) = rows_of(messages=text(cell))
    assert json.loads(cell) == row.messages


def test_invalid_utf8_inside_message_structs_is_a_row_error():
    """Text that is not UTF-8 is found in nested values too, and fails its row alone."""
    content = pa.array([b"ok", b"\xff"]).view(pa.string())
    structs = pa.StructArray.from_arrays([content], ["content"])
    messages = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), structs)
    assert {1: "messages is not valid UTF-8"} == errors(rows_of(messages=messages))


def test_messages_win_over_the_prompt_where_they_are_not_null():
    """With both columns, messages that are not null count, then the prompt, then an error."""
    messages = text('[{"role": "user", "content": "m"}]', None, None)
    rows = rows_of(prompt=text("p0", "p1", None), messages=messages)
    assert (None, "p1") == (rows[0].prompt, rows[1].prompt)
    assert {2: "prompt and messages are null"} == errors(rows)


def test_row_ids_count_on_from_the_first_row():
    """Failed rows keep their place."""
    assert [7, 8, 9] == [row.row_id for row in rows_of(prompt=text("a", None, "b"))]


def test_sampling_structs_override_the_defaults_where_not_null(data):
    """Null fields and null structs mean the job's default."""
    rows = rows_of_case(data, "429-sampling-params-struct")
    assert {} == errors(rows)
    assert [1, 16, 16, 16, 16] == [row.sampling.max_tokens for row in rows]


def test_impossible_sampling_values_fail_their_rows(data):
    """One impossible value a row: each of these rows fails, naming the parameter."""
    failures = errors(rows_of_case(data, "431-sampling-values-out-of-range"))
    named = {0: "temperature", 1: "temperature", 5: "top_p", 6: "top_p", 7: "top_k"}
    assert {} == {i: failures.get(i) for i in named if named[i] not in failures.get(i, "")}
    assert {4, 8}.isdisjoint(failures)


def test_log_probabilities_that_no_column_would_take_fail_the_row():
    """They must not be dropped without a word; where the column is there, a row sets its own K."""
    shard = {"prompt": text("a", "b"), "sampling_params": text('{"logprobs": 2}', "{}")}
    first, second = rows_of(**shard)
    assert (
        "logprobs 2 has no column to go to; add logprobs to cluster.output_columns" in first.error
    )
    assert isinstance(second, Request)
    rows = rows_of(**shard, defaults=SamplingParams(logprobs=0))
    assert [2, 0] == [row.sampling.logprobs for row in rows]


@pytest.mark.parametrize("kind", ["JSON", "struct"])
def test_a_row_that_asks_for_too_many_completions_fails_alone(kind):
    """Both numbers are named; up to the limit a row sets its own n, null is the default."""
    numbers = (None, 1, 3, 4)
    column = pa.array([{"n": n} for n in numbers])
    if kind == "JSON":
        column = text(*(json.dumps({"n": n}) for n in numbers))
    rows = rows_of(
        prompt=text(*"abcd"), sampling_params=column, defaults=SamplingParams(n=2), max_n=3
    )
    assert [2, 1, 3] == [row.sampling.n for row in rows[:3]]
    expected = "sampling_params: n 4 is more than cluster.max_n 3; lower n or raise cluster.max_n"
    assert {3: expected} == errors(rows)


def test_sampling_params_of_invalid_utf8_or_json_fail_the_row():
    """The cell is named, whatever is wrong with it."""
    column = pa.array(
        [b"\xff", b"{", b"[1]", json.dumps({"max_tokens": 3}).encode()], pa.large_binary()
    )
    rows = rows_of(prompt=text(*"abcd"), sampling_params=column)
    failures = errors(rows)
    assert [0, 1, 2] == list(failures)
    assert all(error.startswith("sampling_params") for error in failures.values())
    assert 3 == rows[3].sampling.max_tokens


TOOL = '[{"type": "function", "function": {"name": "f"}}]'


def test_tools_beside_messages():
    """Tools are JSON or structs; null and an empty list are none."""
    chat = '[{"role": "user", "content": "a"}]'
    rows = rows_of(messages=text(*[chat] * 4), tools=text(TOOL, None, "[]", "null"))
    assert [json.loads(TOOL), None, None, None] == [row.tools for row in rows]
    structs = pa.array([[{"type": "function", "unused": None}]])
    (row,) = rows_of(messages=text(chat), tools=structs)
    assert [{"type": "function"}] == row.tools


def test_tools_that_are_no_list_of_objects():
    """The row fails and the reason names the column."""
    chat = '[{"role": "user", "content": "a"}]'
    rows = rows_of(messages=text(*[chat] * 3), tools=text('{"a": 1}', "[1]", "["))
    expected = {
        0: "tools: a list is needed, found an object",
        1: "tools: an object is needed at 0, found a number",
        2: "tools: invalid JSON at position 1: Expecting value",
    }
    assert expected == errors(rows)
