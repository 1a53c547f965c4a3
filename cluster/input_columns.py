"""Which input columns hold prompt, messages, tools and sampling parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import pyarrow as pa

from .errors import JobConfigError
from .input_files import display

PROMPT: Final = "prompt"
MESSAGES: Final = "messages"
TOOLS: Final = "tools"
SAMPLING_PARAMS: Final = "sampling_params"

_PROMPT_TYPES: Final = "string (string, large_string, string_view or a dictionary of one)"
_LIST_TYPES: Final = "string with JSON, or list of struct"
_SAMPLING_TYPES: Final = "struct, or string with JSON"
_NAMES_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InputColumns:
    """The columns a job reads its requests from.

    With neither ``prompt`` nor ``messages`` given, the columns of these names are used, whichever
    exist. As soon as one is given, only what is given counts. Where both are in use, a row whose
    messages are not null uses them, and its prompt otherwise. ``sampling_params`` is used
    when it exists, and ``tools`` when it exists beside messages; a name that is given must exist.

    Attributes:
        prompt: column of plain text.
        messages: column of conversations.
        tools: column of the functions that a conversation may call.
        sampling_params: column of per-row overrides of the job's sampling parameters.
    """

    prompt: str | None = None
    messages: str | None = None
    tools: str | None = None
    sampling_params: str | None = None

    def resolve(self, schema: pa.Schema, file: str) -> "InputColumns":
        """Return the columns that this file uses, None for those it lacks.

        Raises:
            JobConfigError: a column that was named is missing, neither prompt nor messages is
                there, or a type is wrong; the message names file, column and the type found.
        """
        by_name = self.prompt is None and self.messages is None
        prompt = PROMPT if by_name else self.prompt
        messages = MESSAGES if by_name else self.messages
        tools = self.tools or TOOLS
        sampling = self.sampling_params or SAMPLING_PARAMS
        found = InputColumns(
            prompt=prompt if prompt in schema.names else None,
            messages=messages if messages in schema.names else None,
            tools=tools if messages in schema.names and tools in schema.names else None,
            sampling_params=sampling if sampling in schema.names else None,
        )
        if found.prompt is None and found.messages is None:
            raise _missing(file, [name for name in (prompt, messages) if name], schema)
        for given in self.names():
            if given not in schema.names:
                raise _missing(file, [given], schema)
        if self.tools is not None and found.messages is None:
            raise JobConfigError(
                f"{display(file)}: the column {self.tools} holds tools, and there are no messages "
                "to go with them; name the column of messages, or leave tools_column out"
            )
        found._check_types(schema, file)
        return found

    def names(self) -> list[str]:
        """Return the columns in use."""
        columns = (self.prompt, self.messages, self.tools, self.sampling_params)
        return [column for column in columns if column is not None]

    def _check_types(self, schema: pa.Schema, file: str) -> None:
        if self.prompt is not None and not is_text(schema.field(self.prompt).type):
            raise _wrong_type(file, schema.field(self.prompt), _PROMPT_TYPES)
        for lists in (self.messages, self.tools):
            if lists is not None:
                field = schema.field(lists)
                if not is_text(field.type) and not is_struct_list(field.type):
                    raise _wrong_type(file, field, _LIST_TYPES)
        if self.sampling_params is not None:
            field = schema.field(self.sampling_params)
            if not is_text(field.type) and not pa.types.is_struct(field.type):
                raise _wrong_type(file, field, _SAMPLING_TYPES)


def storage_type(type_: pa.DataType) -> pa.DataType:
    """Return what an extension type (``arrow.json``, say) is stored as, other types unchanged."""
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def is_text(type_: pa.DataType) -> bool:
    """Tell whether values of the type are text."""
    type_ = storage_type(type_)
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_string_view(type_)
    )


def is_struct_list(type_: pa.DataType) -> bool:
    """Tell whether values of the type are lists of structs."""
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    return bool(is_list and pa.types.is_struct(type_.value_type))


def _missing(file: str, wanted: Sequence[str], schema: pa.Schema) -> JobConfigError:
    there = ", ".join(schema.names[:_NAMES_SHOWN]) or "none"
    more = len(schema.names) - _NAMES_SHOWN
    return JobConfigError(
        f"{display(file)}: no column {' or '.join(wanted)}{_hint(wanted, schema)}; columns there: "
        f"{there}{f' and {more} more' if more > 0 else ''}; name the column in the configuration"
    )


def _hint(wanted: Sequence[str], schema: pa.Schema) -> str:
    """Return what was probably meant: another spelling, or a field that lies inside a column."""
    by_lower = {name.lower(): name for name in reversed(schema.names)}
    for name in wanted:
        outer = name.partition(".")[0]
        if outer != name and outer in schema.names:
            kind = schema.field(outer).type
            return f", and {outer} is {kind}: make its field a column of its own"
        if near := get_close_matches(name.lower(), by_lower, n=1):
            return f" (did you mean {by_lower[near[0]]}?)"
    return ""


def _wrong_type(file: str, field: pa.Field, needed: str) -> JobConfigError:
    return JobConfigError(
        f"{display(file)}: column {field.name} is {field.type}; needed: {needed}; "
        "cast the column or name another one"
    )
