"""SmolLM 3: Llama with rotary positions in three layers of four."""

from collections.abc import Mapping

from worker.errors import UnsupportedModelError
from worker.huggingface.config import Config
from worker.huggingface.family import Family
from worker.huggingface.rope import divisible_rope_keys, rope_tensors

from .decoder import ENDS, GATED_MLP, KEYS, PRE_NORMS, layer, whole_context
from .llama import PAIRED_ATTENTION

_PLAIN_EVERY = 4


def _check_plain_layers(config: Config) -> Mapping[str, object]:
    """Check that every fourth layer has no rotary positions, which GGUF has no key for.

    Raises:
        UnsupportedModelError: it is another pattern.
    """
    layers = config.get("no_rope_layers")
    every = config.get("no_rope_layer_interval", _PLAIN_EVERY)
    count = config.integer("num_hidden_layers")
    expected = [int((number + 1) % _PLAIN_EVERY != 0) for number in range(count)]
    if layers not in (None, expected) or (layers is None and every != _PLAIN_EVERY):
        raise UnsupportedModelError(
            f"{config.path}: field no_rope_layers is another pattern than every fourth layer, "
            "which is not computed; take another model"
        )
    return {}


SMOLLM3 = Family(
    architecture="smollm3",
    classes=("SmolLM3ForCausalLM",),
    keys={**KEYS, "context_length": whole_context},
    key_groups=(divisible_rope_keys, _check_plain_layers),
    tensors={**ENDS, **layer({**PRE_NORMS, **PAIRED_ATTENTION, **GATED_MLP})},
    extra=rope_tensors,
    fixed={"hidden_act": ("silu",)},
    ties_embeddings=True,
)
