"""A layer group: layers that share one block table per sequence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers whose K/V have the same shape and the same lifetime.

    Attributes:
        name: for messages and statistics, for example ``full`` or ``window-512``.
        layers: indices of the model's layers, ascending.
        num_kv_heads: K/V heads of each of these layers.
        head_dim: values a head, the same for K and V.
        window: a token attends to itself and the ``window - 1`` tokens before it; None attends
            to all tokens before it.
    """

    name: str
    layers: tuple[int, ...]
    num_kv_heads: int
    head_dim: int
    window: int | None

    def __post_init__(self) -> None:
        assert self.layers, f"layer group {self.name} has no layers"
        assert self.window is None or self.window > 0, f"layer group {self.name}: window < 1"

    def block_bytes(self, block_size: int, itemsize: int) -> int:
        """Bytes of one block: keys and values of ``block_size`` tokens in all layers.

        ``itemsize`` is the bytes of a number: 4 for float32, 2 for float16.
        """
        values = len(self.layers) * self.num_kv_heads * block_size * self.head_dim
        return 2 * values * itemsize
