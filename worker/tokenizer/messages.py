"""Messages of a row, checked and brought into the one form that chat templates expect."""

from collections.abc import Mapping, Sequence
from typing import Any

from worker.errors import RowError

_DEEPEST = 64


def normalise_messages(messages: object) -> list[dict[str, Any]]:
    """Check a conversation and copy it into plain dicts.

    A message's fields that are null are dropped: templates ask ``is defined``. Nulls further
    down, in the arguments of a tool call perhaps, are the user's own. Content given as parts of
    text is joined. Content that is null beside ``tool_calls`` becomes an empty text.

    Args:
        messages: a list of mappings with a ``role`` and ``content``.

    Raises:
        RowError: not a conversation; the message says where and what was found.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise RowError(f"messages: a list is needed, found {type(messages).__name__}")
    if not messages:
        raise RowError("messages: the list is empty; give at least one message")
    return [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]


def normalise_tools(tools: object) -> list[Any]:
    """Check the tools of a row and copy them into plain dicts and lists.

    Raises:
        RowError: not a list of mappings; the message says where and what was found.
    """
    if isinstance(tools, str | bytes) or not isinstance(tools, Sequence):
        raise RowError(f"tools: a list is needed, found {type(tools).__name__}")
    for place, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise RowError(f"tools[{place}]: a tool's schema is needed, found {_kind(tool)}")
    return [_plain(tool, f"tools[{place}]", 1) for place, tool in enumerate(tools)]


def check_text(text: str, where: str) -> None:
    """Raise RowError when a text cannot be written as UTF-8: it holds half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RowError(
            f"{where} is not valid Unicode: lone surrogate U+{ord(text[error.start]):04X} at "
            f"character {error.start}; repair the text"
        ) from error


def _message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RowError(
            f"{where}: a message with role and content is needed, found {_kind(message)}"
        )
    plain = _plain({k: v for k, v in message.items() if v is not None}, where, 1)
    assert isinstance(plain, dict)
    role = plain.get("role")
    if not isinstance(role, str) or not role:
        raise RowError(f"{where}.role: a text is needed, found {_kind(role)}")
    plain["content"] = _content(plain, where)
    return plain


def _content(message: Mapping[str, Any], where: str) -> str:
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            _part_text(part, f"{where}.content[{place}]") for place, part in enumerate(content)
        )
    raise RowError(
        f"{where}.content: a text or a list of text parts is needed, found {_kind(content)}"
    )


def _part_text(part: object, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise RowError(f"{where}: a text part is needed, found {_kind(part)}")
    kind = part.get("type")
    if kind != "text":
        raise RowError(f"{where}: parts of type {kind!r} are not supported; give text parts only")
    text = part.get("text")
    if not isinstance(text, str):
        raise RowError(f"{where}.text: a text is needed, found {_kind(text)}")
    return text


def _plain(value: Any, where: str, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    if depth > _DEEPEST:
        raise RowError(f"{where}: nested more than {_DEEPEST} levels deep")
    if isinstance(value, str):
        check_text(value, where)
        return value
    if isinstance(value, Mapping):
        return {
            _plain(key, where, depth + 1): _plain(item, f"{where}.{key}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{place}]", depth + 1) for place, item in enumerate(value)]
    return value


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
