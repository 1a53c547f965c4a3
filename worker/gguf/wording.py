"""How values from an untrusted file appear in messages."""


def shown(value: object, limit: int = 80) -> str:
    """Give a value as one printable line of at most ``limit`` characters (and an ellipsis).

    Names and values of a file can be megabytes long or hold terminal control codes.
    """
    text = value if isinstance(value, str) else repr(value)
    head = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:limit])
    return head if len(text) <= limit else f"{head}..."
