"""Writes llama files of any shape with random weights, to be right or wrong in one place."""

import gguf
import numpy as np

VOCABULARY, HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS = 40, 32, 48, 2, 4, 2


_UINT32, _UINT64 = gguf.GGUFValueType.UINT32, gguf.GGUFValueType.UINT64
_INT64 = gguf.GGUFValueType.INT64
_FLOAT32, _FLOAT64 = gguf.GGUFValueType.FLOAT32, gguf.GGUFValueType.FLOAT64


def keys(architecture="llama"):
    """Metadata of a sound file."""
    own = {
        "block_count": LAYERS,
        "context_length": 64,
        "embedding_length": HIDDEN,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    tokens = [f"t{i}" for i in range(VOCABULARY)]
    return {
        **{f"{architecture}.{name}": value for name, value in own.items()},
        "tokenizer.ggml.tokens": tokens,
    }


def tensors(seed=0):
    """Weights of a sound file, by name, in NumPy's order."""
    random = np.random.default_rng(seed)
    head_dim = HIDDEN // HEADS
    shapes = {"token_embd.weight": (VOCABULARY, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        own = {
            "attn_norm": (HIDDEN,),
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (KV_HEADS * head_dim, HIDDEN),
            "attn_v": (KV_HEADS * head_dim, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (FEED_FORWARD, HIDDEN),
            "ffn_up": (FEED_FORWARD, HIDDEN),
            "ffn_down": (HIDDEN, FEED_FORWARD),
        }
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in own.items()}
    return {
        name: random.standard_normal(shape, np.float32) * (0.3 if len(shape) == 2 else 1)
        for name, shape in shapes.items()
    }


def gemma_norms():
    """What a gemma3 file has besides."""
    sizes = {
        "attn_q_norm": HIDDEN // HEADS,
        "attn_k_norm": HIDDEN // HEADS,
        "post_attention_norm": HIDDEN,
        "post_ffw_norm": HIDDEN,
    }
    return {
        f"blk.{layer}.{name}.weight": np.ones(size, np.float32)
        for layer in range(LAYERS)
        for name, size in sizes.items()
    }


def write(path, metadata, weights, architecture="llama"):
    """Write a file with these keys (None: left out) and tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            fits = 0 <= value < 1 << 32
            writer.add_key_value(key, value, _UINT32 if fits else _INT64 if value < 0 else _UINT64)
        elif isinstance(value, float):
            fits = value == 0 or 1e-38 < abs(value) < 1e38
            writer.add_key_value(key, value, _FLOAT32 if fits else _FLOAT64)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)
    for name, tensor in weights.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
