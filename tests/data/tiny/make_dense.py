"""Makes the folders of dense families: tiny random models with every feature on, and their logits.

Needs what make_experts.py needs: ``python make_dense.py LLAMA_CPP [NAME ...]``. Weights are
rounded to float16, so the F16 file holds them exactly and the logits are transformers' own.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import transformers
from make_experts import VOCABULARY, convert, logits_of, tokenizer
from safetensors.torch import load_file, save_file

HERE = Path(__file__).parent
# Short prompts stay within the original length of scaled positions, long ones do not.
LENGTHS = (24, 150)
SIZES = {
    "vocab_size": VOCABULARY + 11,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
LAYERS = {"num_hidden_layers": 5}
FACTORS = {
    "short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0, 2.4, 3.0],
    "long_factor": [1.0, 1.2, 1.9, 3.0, 4.5, 7.0, 8.0, 8.0],
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}

CONFIGS = {
    "llama-biases": transformers.LlamaConfig(
        **SIZES | {"hidden_size": 60, "num_attention_heads": 3, "num_key_value_heads": 1},
        head_dim=24, attention_bias=True, mlp_bias=True, rope_parameters=dict(YARN),
    ),
    "llama-linear": transformers.LlamaConfig(
        **SIZES, tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
    ),
    "qwen2-yarn": transformers.Qwen2Config(
        **SIZES, rope_parameters=YARN | {"beta_fast": 16.0, "beta_slow": 2.0}
    ),
    "phi3": transformers.Phi3Config(
        **SIZES, sliding_window=40,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        original_max_position_embeddings=512,
    ),
    "phi3-longrope": transformers.Phi3Config(
        **SIZES | {"hidden_size": 128, "num_attention_heads": 4}, sliding_window=None,
        original_max_position_embeddings=64,
        rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
            "original_max_position_embeddings": 64, **FACTORS,
        },
    ),
    "olmo2": transformers.Olmo2Config(
        **SIZES, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}
    ),
    "olmo3": transformers.Olmo3Config(
        **SIZES | LAYERS, sliding_window=24, rope_parameters=dict(YARN)
    ),
    "granite": transformers.GraniteConfig(
        **SIZES, embedding_multiplier=7.0, attention_multiplier=0.11, residual_multiplier=0.3,
        logits_scaling=3.0, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    "smollm3": transformers.SmolLM3Config(
        **SIZES | LAYERS, no_rope_layer_interval=4, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 50000.0},
    ),
    "stablelm": transformers.StableLmConfig(
        **SIZES, use_qkv_bias=True, qk_layernorm=True, use_parallel_residual=True,
        rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
        },
    ),
    "stablelm-sequential": transformers.StableLmConfig(
        **SIZES | {"hidden_size": 80, "num_attention_heads": 5, "num_key_value_heads": 5},
        rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        },
    ),
    "starcoder2": transformers.Starcoder2Config(
        **SIZES, use_bias=True, sliding_window=24, hidden_act="gelu_pytorch_tanh",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    "gpt2": transformers.GPT2Config(
        vocab_size=VOCABULARY + 11, n_positions=192, n_ctx=192, n_embd=84, n_layer=2, n_head=3,
        bos_token_id=0, eos_token_id=1,
    ),
}  # fmt: skip
# What the converter does not write although transformers computes it.
WINDOWS = {"starcoder2": 24}


def randomise(model):
    """Draw all weights, as float16 holds them: norms about 1, biases that are felt."""
    random = np.random.default_rng(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = random.standard_normal(tuple(weight.shape), np.float32)
            if name.endswith("bias"):
                values *= 0.3
            elif weight.ndim == 1 or "norms" in name:
                values = 1 + 0.2 * values
            else:
                values *= 0.15
            weight.copy_(torch.from_numpy(values.astype(np.float16).astype(np.float32)))


def save(model, folder):
    """Save a model as the converter wants it: StableLM's norms of heads in one tensor each."""
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"tokenizer_class": "GPT2Tokenizer"}
    path.write_text(json.dumps(settings))
    weights = load_file(folder / "model.safetensors")
    groups = {}
    for key in [key for key in weights if ".norms." in key]:
        groups.setdefault(key.split(".norms.")[0], []).append(key)
    for key, parts in groups.items():
        parts.sort(key=lambda part: int(part.split(".")[-2]))
        weights[f"{key}.weight"] = torch.stack([weights.pop(part) for part in parts])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def make(name, config, llama_cpp):
    """Make the files of one model."""
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    ).eval()
    randomise(model)
    random = np.random.default_rng(1)
    prompts = [random.integers(2, VOCABULARY, length).tolist() for length in LENGTHS]
    with TemporaryDirectory() as work:
        work = Path(work)
        save(model, work / "hf")
        convert(llama_cpp, work / "hf", work / "F32.gguf", "llama-bpe")
        path = folder / f"{name}-F16.gguf"
        command = [llama_cpp / "build/bin/llama-quantize"]
        if name in WINDOWS:
            key = f"{config.model_type}.attention.sliding_window"
            command += ["--override-kv", f"{key}=int:{WINDOWS[name]}"]
        subprocess.run([*command, work / "F32.gguf", path, "F16"], check=True, stdout=sys.stderr)
    expected = {}
    for i, ids in enumerate(prompts):
        logits = logits_of(model, ids)
        expected[f"F16.p{i}"] = logits
        expected[f"F16.p{i}.argmax"] = logits.argmax(1).astype(np.int32)
    np.savez_compressed(folder / "expected.npz", **expected)
    description = {"config": config.to_dict(), "prompts": [{"ids": ids} for ids in prompts]}
    (folder / "model.json").write_text(json.dumps(description, default=str) + "\n")


def main():
    """Make the models named, or all."""
    llama_cpp, *names = sys.argv[1:]
    for name in names or CONFIGS:
        make(name, CONFIGS[name], Path(llama_cpp).resolve())


if __name__ == "__main__":
    main()
