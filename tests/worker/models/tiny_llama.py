"""Writes llama files of any shape with random weights, to be right or wrong in one place."""

import gguf
import numpy as np

VOCABULARY, HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS = 40, 32, 48, 2, 4, 2


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


def write(path, metadata, weights, architecture="llama"):
    """Write a file with these keys (None: left out) and tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
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
