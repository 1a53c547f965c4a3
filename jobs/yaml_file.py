"""YAML as tokenmill reads it: safe, and no key twice."""

from pathlib import Path
from typing import Any

import yaml

from cluster.errors import JobConfigError


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, of which plain YAML drops one in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key_node.value!r} stands there twice; remove one",
                    problem_mark=key_node.start_mark,
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        JobConfigError: no such file, not UTF-8, not YAML, or not a mapping; names file and line.
    """
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except OSError as error:
        raise JobConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JobConfigError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise JobConfigError(f"{path}{where}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise JobConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(value, dict):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise JobConfigError(f"{path}: found {found}, expected `key: value` lines")
    return value


def parse_yaml_value(text: str) -> Any:  # noqa: ANN401 - any YAML value is what it answers
    """The value that a command-line override spells, as it would stand in the file.

    Raises:
        ValueError: the text is not YAML.
    """
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{text!r} is not a YAML value") from error
