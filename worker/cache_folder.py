"""Where tokenmill keeps what it can make or fetch again: models, file hashes, packed weights."""

import os
import sys
from pathlib import Path

CACHE_VARIABLE = "TOKENMILL_CACHE"


def cache_folder() -> Path:
    """Give the user's cache folder; it need not exist yet.

    It is ``$TOKENMILL_CACHE`` if set, else ``~/Library/Caches/tokenmill`` on macOS and
    ``$XDG_CACHE_HOME/tokenmill`` or ``~/.cache/tokenmill`` elsewhere.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tokenmill"
    # The XDG specification says that a relative path there is to be ignored.
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache"
    return base / "tokenmill"
