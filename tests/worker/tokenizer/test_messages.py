"""Checking and copying messages."""

import pytest

from worker.errors import RowError
from worker.tokenizer.messages import normalise_messages


def nested(depth):
    """A list in a list in a list."""
    value = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": "a"}, {"role": "user", "content": "a"}),
        ({"role": "user", "content": "a", "name": None}, {"role": "user", "content": "a"}),
        ({"role": "user", "content": ""}, {"role": "user", "content": ""}),
        ({"role": "user", "content": []}, {"role": "user", "content": ""}),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"role": "user", "content": "ab"},
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"a": {"b": None, "c": 1}}]},
            {"role": "assistant", "content": "", "tool_calls": [{"a": {"b": None, "c": 1}}]},
        ),
    ],
)
def test_one_form(message, expected):
    """A message's null fields are gone, arguments of calls as given, parts are joined."""
    assert [expected] == normalise_messages([message])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "messages: the list is empty"),
        ("text", "messages: a list is needed, found str"),
        ({"role": "user"}, "messages: a list is needed, found dict"),
        (None, "messages: a list is needed, found NoneType"),
        ([None], r"messages\[0\]: a message .* found nothing"),
        (["hi"], r"messages\[0\]: a message .* found str"),
        ([{"content": "a"}], r"messages\[0\]\.role: a text is needed, found nothing"),
        ([{"role": 1, "content": "a"}], r"messages\[0\]\.role: a text is needed, found int"),
        ([{"role": "", "content": "a"}], r"messages\[0\]\.role"),
        ([{"role": "user"}], r"messages\[0\]\.content: .* found nothing"),
        ([{"role": "user", "content": None}], r"messages\[0\]\.content: .* found nothing"),
        ([{"role": "user", "content": 3}], r"messages\[0\]\.content: .* found int"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "parts of type 'image_url'"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\]\.text: .* nothing"),
        (
            [{"role": "user", "content": "a\ud800"}],
            r"messages\[0\]\.content .* U\+D800 at character 1",
        ),
        ([{"role": "user", "content": "a", "x": nested(100)}], "nested more than 64 levels"),
        ([{"role": "user", "content": "a", "x": nested(100_000)}], "nested more than 64 levels"),
    ],
)
def test_what_is_no_conversation(messages, words):
    """The error says where and what was found."""
    with pytest.raises(RowError, match=words):
        normalise_messages(messages)


def test_the_second_message_is_named():
    """An error names the message by its place."""
    with pytest.raises(RowError, match=r"messages\[1\]"):
        normalise_messages([{"role": "user", "content": "a"}, {"role": "user"}])
