"""Which layers see a window only, as the metadata of a file say."""

from .key_reader import KeyReader

_WINDOW = "attention.sliding_window"
_PATTERN = "attention.sliding_window_pattern"


def window_of_all_layers(keys: KeyReader, num_layers: int) -> tuple[int | None, ...]:
    """The same window in each layer; none where the key is missing or 0."""
    return (keys.optional_unless_zero(_WINDOW),) * num_layers


def alternating_windows(
    keys: KeyReader, num_layers: int, window: int | None, full_every: int
) -> tuple[int | None, ...]:
    """Each layer's window: as the file says layer by layer, or all but each n-th.

    Args:
        keys: of the file, which may give n or a boolean for each layer.
        num_layers: of the model.
        window: of layers that have one.
        full_every: n where the file does not say.
    """
    flags = keys.optional_layer_flags(_PATTERN, num_layers)
    if flags is None:
        every = keys.optional_positive(_PATTERN) or full_every
        flags = [(layer + 1) % every != 0 for layer in range(num_layers)]
    return tuple(window if flag else None for flag in flags)
