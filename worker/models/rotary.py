"""Rotary position embedding of one kind of layer: angles, tables and rotation."""

from math import ceil, floor, log, pi

import numpy as np
from numpy.typing import NDArray

from .rope_config import RopeConfig, YarnConfig

_FIRST_LENGTH = 1024
_NARROWEST = 0.001  # ramp of YaRN, in pairs


class RotaryEmbedding:
    """Rotates queries and keys by angles that grow with the position.

    Tables of cosines and sines are made once, for the first 1024 positions or as many as the model
    has; a longer sequence doubles them. An angle is position * frequency, both and the product
    rounded to float32, as in the reference implementations; cosine and sine are taken in
    float64 and rounded once.

    Attributes:
        length: positions there can be.
        cos: float32 [positions, angles]: cosines of the angles.
        sin: float32 [positions, angles].
        long: the rotary embedding of long sequences, if they have another.
    """

    length: int
    long: "RotaryEmbedding | None"
    cos: NDArray[np.float32]
    sin: NDArray[np.float32]

    def __init__(
        self,
        config: RopeConfig,
        length: int,
        divisors: NDArray[np.float32] | None = None,
        long: "RotaryEmbedding | None" = None,
    ) -> None:
        """Make the tables.

        Args:
            config: base, rotated width, layout and scaling.
            length: positions the model was made for.
            divisors: float32 [dimensions / 2] that frequencies are divided by (Llama 3.1).
            long: the rotary embedding of long sequences, if they have another (LongRoPE).
        """
        self.length = length
        self.long = long
        self._config = config
        self._frequencies = _frequencies(config, divisors)
        self.cos = self.sin = np.zeros((0, config.dimensions // 2), np.float32)
        self._extend(min(length, _FIRST_LENGTH))

    @property
    def all(self) -> list["RotaryEmbedding"]:
        """This one, and that of long sequences behind it."""
        return [self] if self.long is None else [self, self.long]

    @property
    def angles(self) -> int:
        """Pairs of a head that rotate."""
        return self._config.dimensions // 2

    @property
    def distance(self) -> int:
        """How far the members of a pair are apart, see `kernels.rope`."""
        return self.angles if self._config.layout == "halves" else 1

    def reach(self, position: int) -> None:
        """See to it that the tables hold `position`; they may move."""
        assert position < self.length, (position, self.length)
        if position >= len(self.cos):
            self._extend(min(self.length, max(2 * len(self.cos), position + 1)))

    def _extend(self, length: int) -> None:
        start = len(self.cos)
        positions = np.arange(start, length, dtype=np.float64)
        angles = np.outer(positions, self._frequencies).astype(np.float32).astype(np.float64)
        magnitude = self._config.magnitude
        cos, sin = magnitude * np.cos(angles), magnitude * np.sin(angles)
        self.cos = np.concatenate([self.cos, cos.astype(np.float32)])
        self.sin = np.concatenate([self.sin, sin.astype(np.float32)])


def _frequencies(config: RopeConfig, divisors: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Angle per position of each pair: float32 [dimensions / 2]."""
    exponents = np.arange(0, config.dimensions, 2, dtype=np.float64) / config.dimensions
    unscaled = config.base**-exponents
    frequencies = unscaled / config.factor
    if config.yarn is not None:
        kept = _kept_share(config, config.yarn)
        frequencies = frequencies * (1 - kept) + unscaled * kept
    if divisors is not None:
        frequencies /= divisors
    return frequencies.astype(np.float32)


def _kept_share(config: RopeConfig, yarn: YarnConfig) -> NDArray[np.float64]:
    """How much of its wavelength each pair keeps under YaRN: float64 [dimensions / 2]."""

    def pair_that_turns(times: float) -> float:
        """The pair that turns so often within the original length, between two pairs."""
        wavelengths = log(yarn.original_length / (times * 2 * pi))
        return config.dimensions * wavelengths / (2 * log(config.base))

    low, high = pair_that_turns(yarn.fast), pair_that_turns(yarn.slow)
    if yarn.is_truncated:
        low, high = floor(low), ceil(high)
    low, high = max(0, low), min(config.dimensions - 1, high)
    pairs = np.arange(config.dimensions // 2, dtype=np.float64)
    stretched = np.clip((pairs - low) / max(_NARROWEST, high - low), 0, 1)
    return (1 - stretched) * yarn.share
