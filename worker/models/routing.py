"""Where a step keeps which experts its tokens go to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .config import ExpertsConfig


@dataclass(frozen=True, slots=True)
class Routing:
    """The pairs of a step, T tokens with K experts each; written anew by every layer.

    See `kernels.route_task`.

    Attributes:
        config: hyperparameters.
        chosen: int32 [T, K]: experts of a token, the best first.
        weights: float32 [T, K]: of these.
        places: int32 [T * K]: of each pair, where pairs stand in the order of their experts.
        sources: int32 [T * K]: the token of each place.
        starts: int32 [experts + 1]: the first place of each expert.
        active: int32 [experts]: those that were chosen, in order; the header counts them.
    """

    config: ExpertsConfig
    chosen: NDArray[np.int32]
    weights: NDArray[np.float32]
    places: NDArray[np.int32]
    sources: NDArray[np.int32]
    starts: NDArray[np.int32]
    active: NDArray[np.int32]

    @classmethod
    def with_room(cls, config: ExpertsConfig, tokens: int) -> "Routing":
        """Memory for so many tokens."""
        pairs = tokens * config.used
        return cls(
            config=config,
            chosen=np.empty((tokens, config.used), np.int32),
            weights=np.empty((tokens, config.used), np.float32),
            places=np.empty(pairs, np.int32),
            sources=np.empty(pairs, np.int32),
            starts=np.empty(config.count + 1, np.int32),
            active=np.empty(config.count, np.int32),
        )
