"""StarCoder 2: LayerNorm, biases, a feed-forward layer without a gate."""

from worker.huggingface.config import field
from worker.huggingface.family import Family
from worker.huggingface.rope import rope_keys

from .decoder import (
    ATTENTION,
    LAYER_NORM_ENDS,
    LAYER_NORM_KEYS,
    PRE_NORMS,
    WINDOW_KEY,
    layer,
    with_biases,
)

STARCODER2 = Family(
    architecture="starcoder2",
    classes=("Starcoder2ForCausalLM",),
    keys={
        **LAYER_NORM_KEYS,
        **WINDOW_KEY,
        "attention.layer_norm_epsilon": field("norm_epsilon"),
    },
    key_groups=(rope_keys,),
    tensors={
        **LAYER_NORM_ENDS,
        **layer(
            {
                **with_biases(PRE_NORMS),
                **ATTENTION,
                **with_biases(
                    {
                        "mlp.c_fc.weight": "ffn_up.weight",
                        "mlp.c_proj.weight": "ffn_down.weight",
                    }
                ),
            }
        ),
    },
    fixed={"hidden_act": ("gelu_pytorch_tanh",)},
    ties_embeddings=True,
)
