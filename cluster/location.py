"""Where inputs and outputs lie: a path of this machine, or an object store by its URI.

The storage interface is the part of pathlib that ``ObjectPath`` has; ``pathlib.Path`` is its other
implementation. Only how a file is committed (``commit``) and how a folder is held by one driver
(``lock``, ``lease``) differ.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from .object_path import ObjectPath, is_uri

Location = Path | ObjectPath


def location(name: str) -> Location:
    """Return what a path or URI stands for; ``file://`` is a path.

    Raises:
        JobConfigError: a URI that pyarrow does not know.
        OSError: the store does not answer.
    """
    if not is_uri(name):
        return Path(name)
    if name.lower().startswith("file://"):
        return Path(unquote(urlsplit(name).path))
    return ObjectPath.parse(name)


def named(folder: Location, pattern: str) -> list[Location]:
    """Return what lies in a folder and has a name that fits, in the order of names.

    Raises:
        OSError: the storage failed.
    """
    return sorted(folder.glob(pattern), key=lambda path: path.name)


def local_form(name: str) -> str:
    """Return a path or URI as later code wants it: ``file://`` becomes a path."""
    return str(location(name)) if name.lower().startswith("file://") else name


def without_secrets(name: str) -> str:
    """Return a path or URI for messages: a URI without credentials and options."""
    if not is_uri(name):
        return name
    parts = urlsplit(name)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
