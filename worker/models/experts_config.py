"""Hyperparameters of a mixture of experts, read from the metadata of a file and checked."""

from worker.errors import GGUFError, UnsupportedModelError

from .config import ExpertsConfig
from .key_reader import KeyReader

_SOFTMAX = 1  # of expert_gating_func


def read_experts(
    keys: KeyReader, num_layers: int, intermediate_size: int | None = None
) -> ExpertsConfig:
    """Experts in every layer, whose weights are shares of a softmax.

    Args:
        keys: of the file.
        num_layers: of the model.
        intermediate_size: of an expert, where the file does not say; None if it must.

    Raises:
        GGUFError: a key is missing or has a value that cannot be.
        UnsupportedModelError: weights are no shares of a softmax.
    """
    count, used = keys.positive("expert_count"), keys.layer_size("expert_used_count", num_layers)
    if used > count:
        raise GGUFError(
            f"{keys.path}: key {keys.key('expert_used_count')} is {used}, more than "
            f"{keys.key('expert_count')}, {count}; convert the model again"
        )
    gating = keys.optional_unless_zero("expert_gating_func")
    if gating not in (None, _SOFTMAX):
        raise UnsupportedModelError(
            f"{keys.path}: key {keys.key('expert_gating_func')} is {gating}: tokenmill computes "
            f"the weights of experts by softmax alone, {_SOFTMAX}; take a model with that"
        )
    if intermediate_size is None:
        intermediate_size = keys.layer_size("expert_feed_forward_length", num_layers)
    return ExpertsConfig(
        count=count,
        used=used,
        intermediate_size=keys.optional_layer_size("expert_feed_forward_length", num_layers)
        or intermediate_size,
        is_share_of_all=keys.optional_flag("expert_weights_norm") is False,
        scale=keys.factor("expert_weights_scale") or 1.0,
    )
