"""A chat template named on the command line or in a configuration."""

from pathlib import Path

from cluster.errors import JobConfigError
from worker.tokenizer.template_choice import is_name


def read_template(given: str) -> str:
    """Give a template's source for the path of a file; sources and names as they are.

    A path ends in ``.jinja`` or ``.j2``, has a slash, or is a file that exists.

    Raises:
        JobConfigError: no such file, or not UTF-8.
    """
    if not is_name(given):
        return given
    path = Path(given).expanduser()
    if path.suffix not in {".jinja", ".j2"} and "/" not in given and not path.is_file():
        return given
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise JobConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JobConfigError(f"{path}: not valid UTF-8 (byte {error.start})") from error
