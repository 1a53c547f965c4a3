"""An option with any number of values, none included: no library of ours parses such a one."""

from collections.abc import Sequence


def with_one_value(option: str, arguments: Sequence[str]) -> list[str]:
    """Put all values of an option into one, separated by blanks and possibly empty.

    Values are the arguments behind it up to the next option.
    """
    result: list[str] = []
    is_open = False
    for argument in arguments:
        if argument == option:
            is_open = True
            result.append(f"{option}=")
        elif is_open and not argument.startswith("-"):
            result[-1] += f" {argument}"
        else:
            is_open = False
            result.append(argument)
    return result
