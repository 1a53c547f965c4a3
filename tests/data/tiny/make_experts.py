"""Makes the files of this folder: tiny random models, and their logits by transformers.

Needs torch, transformers, tokenizers, gguf and llama_cpp, and a built llama.cpp, its folder named:
``python make.py LLAMA_CPP [NAME ...]``. README.md beside the folder says what is made.
"""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
import llama_cpp
import numpy as np
import torch
import transformers
from gguf.quants import dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
CORPUS = [
    "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs.",
    "How vexingly quick daft zebras jump! 0123456789 and (some) [brackets] {too}.",
]
VOCABULARY = 320
LENGTHS = (24, 150)
PRE_TOKENIZERS = {"llama": "llama-bpe", "gpt_oss": "gpt-4o", "qwen3_5_text": "qwen35"}


@dataclass(frozen=True)
class Model:
    """A model to make: its transformers configuration, and the types of its files."""

    config: transformers.PretrainedConfig
    types: tuple[str, ...]
    pre_tokenizer: str
    from_gguf: object = None
    scales: dict[str, float] = field(default_factory=dict)


def unpermuted(weight, heads):
    """Undo the order of query and key rows that the converter of llama makes."""
    rows = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


def llama_weights(tensors, config, experts):
    """Names and values of transformers from those of a mixtral file."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    for layer in range(config.num_hidden_layers):
        for part, count in (("q", heads), ("k", kv_heads)):
            name = f"blk.{layer}.attn_{part}.weight"
            tensors[name] = unpermuted(tensors[name], count)
    return {**attention_names(tensors, config), **expert_names(tensors, config, experts)}


def qwen3_weights(tensors, config):
    """The same of a qwen3moe file."""
    names = {**attention_names(tensors, config), **expert_names(tensors, config, "mlp")}
    for layer in range(config.num_hidden_layers):
        for part in "qk":
            own = tensors[f"blk.{layer}.attn_{part}_norm.weight"]
            names[f"model.layers.{layer}.self_attn.{part}_norm.weight"] = own
    return names


def gpt_oss_weights(tensors, config):
    """The same of a gpt-oss file, whose experts lie in memory the other way round."""
    names = attention_names(tensors, config)
    for layer in range(config.num_hidden_layers):
        prefix, target = f"blk.{layer}", f"model.layers.{layer}"
        own = {name.removeprefix(f"{prefix}."): w for name, w in tensors.items()}
        names[f"{target}.self_attn.sinks"] = own["attn_sinks.weight"]
        for kind in ("weight", "bias"):
            names[f"{target}.mlp.router.{kind}"] = own[f"ffn_gate_inp.{kind}"]
            gate, up, down = (own[f"ffn_{part}_exps.{kind}"] for part in ("gate", "up", "down"))
            gate_up = np.stack([gate, up], axis=2).reshape(gate.shape[0], -1, *gate.shape[2:])
            suffix = "_bias" if kind == "bias" else ""
            turned = (lambda w: w) if kind == "bias" else (lambda w: w.transpose(0, 2, 1))
            names[f"{target}.mlp.experts.gate_up_proj{suffix}"] = turned(gate_up)
            names[f"{target}.mlp.experts.down_proj{suffix}"] = turned(down)
    return names


def qwen35_weights(tensors, config):
    """The same of a qwen35 file: value heads in the order of their key heads, norms without 1."""
    names = attention_names(tensors, config)
    names = {n: w - 1 if n.endswith("norm.weight") else w for n, w in names.items()}
    key_heads, heads = config.linear_num_key_heads, config.linear_num_value_heads
    keys = 2 * key_heads * config.linear_key_head_dim

    def grouped(values, dim):
        """Rows of value heads, sorted by key head."""
        parts = values.reshape(heads // key_heads, key_heads, dim, *values.shape[1:])
        return parts.swapaxes(0, 1).reshape(values.shape)

    for layer, kind in enumerate(config.layer_types):
        prefix, target = f"blk.{layer}.", f"model.layers.{layer}"
        own = {n.removeprefix(prefix): w for n, w in tensors.items() if n.startswith(prefix)}
        for part in ("gate", "up", "down"):
            names[f"{target}.mlp.{part}_proj.weight"] = own[f"ffn_{part}.weight"]
        if kind == "full_attention":
            for part in "qk":
                names[f"{target}.self_attn.{part}_norm.weight"] = (
                    own[f"attn_{part}_norm.weight"] - 1
                )
            continue
        dim, net = config.linear_value_head_dim, f"{target}.linear_attn"
        for name, values in (("in_proj_qkv.weight", "attn_qkv"), ("conv1d.weight", "ssm_conv1d")):
            values = own[f"{values}.weight"]
            joined = np.concatenate([values[:keys], grouped(values[keys:], dim)])
            names[f"{net}.{name}"] = joined[:, None] if name.startswith("conv") else joined
        names[f"{net}.in_proj_z.weight"] = grouped(own["attn_gate.weight"], dim)
        names[f"{net}.in_proj_b.weight"] = grouped(own["ssm_beta.weight"], 1)
        names[f"{net}.in_proj_a.weight"] = grouped(own["ssm_alpha.weight"], 1)
        names[f"{net}.A_log"] = np.log(-grouped(own["ssm_a"], 1))
        names[f"{net}.dt_bias"] = grouped(own["ssm_dt.bias"], 1)
        names[f"{net}.norm.weight"] = own["ssm_norm.weight"]
        names[f"{net}.out_proj.weight"] = grouped(own["ssm_out.weight"].T, dim).T
    return names


def attention_names(tensors, config):
    """What all have in common: embedding, norms, attention, output head."""
    own = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"],
        "lm_head.weight": tensors.get("output.weight", tensors["token_embd.weight"]),
    }
    for layer in range(config.num_hidden_layers):
        prefix, target = f"blk.{layer}", f"model.layers.{layer}"
        own[f"{target}.input_layernorm.weight"] = tensors[f"{prefix}.attn_norm.weight"]
        norm = next(
            n for n in ("ffn_norm", "post_attention_norm") if f"{prefix}.{n}.weight" in tensors
        )
        own[f"{target}.post_attention_layernorm.weight"] = tensors[f"{prefix}.{norm}.weight"]
        for part, name in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
            for kind in ("weight", "bias"):
                if f"{prefix}.{name}.{kind}" in tensors:
                    key = f"{target}.self_attn.{part}_proj.{kind}"
                    own[key] = tensors[f"{prefix}.{name}.{kind}"]
    return own


def expert_names(tensors, config, block):
    """Router and experts."""
    own = {}
    for layer in range(config.num_hidden_layers):
        prefix, target = f"blk.{layer}", f"model.layers.{layer}.{block}"
        gate, up, down = (
            tensors[f"{prefix}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down")
        )
        own[f"{target}.gate.weight"] = tensors[f"{prefix}.ffn_gate_inp.weight"]
        own[f"{target}.experts.gate_up_proj"] = np.concatenate([gate, up], axis=1)
        own[f"{target}.experts.down_proj"] = down
    return own


MODELS = {
    "mixtral": Model(
        transformers.MixtralConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, num_local_experts=5,
            num_experts_per_tok=2, max_position_embeddings=512, sliding_window=None,
            rope_theta=10000.0, tie_word_embeddings=False,
        ),
        ("F16", "Q8_0", "Q4_0"),
        "llama-bpe",
        lambda tensors, config: llama_weights(tensors, config, "mlp"),
    ),
    "qwen3moe": Model(
        transformers.Qwen3MoeConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=160, moe_intermediate_size=32,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
            num_experts=12, num_experts_per_tok=4, norm_topk_prob=True, max_position_embeddings=512,
            rope_theta=1000000.0, tie_word_embeddings=True, mlp_only_layers=[],
        ),
        ("F16", "Q8_0", "Q4_1"),
        "qwen2",
        qwen3_weights,
    ),
    "gpt-oss": Model(
        transformers.GptOssConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_local_experts=6,
            num_experts_per_tok=3, sliding_window=24, max_position_embeddings=512,
            tie_word_embeddings=False,
            rope_parameters={
                "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 32.0,
                "beta_slow": 1.0, "truncate": True, "original_max_position_embeddings": 64,
            },
        ),
        ("F16", "Q8_0", "MXFP4_MOE"),
        "gpt-4o",
        gpt_oss_weights,
        {"sinks": 1.5, "bias": 0.3, "experts": 0.6},
    ),
    "qwen35": Model(
        transformers.Qwen3_5TextConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, linear_conv_kernel_dim=4,
            linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
            linear_num_value_heads=6, full_attention_interval=3, max_position_embeddings=512,
            tie_word_embeddings=False, partial_rotary_factor=0.5,
            rope_parameters={
                "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                "mrope_section": [3, 3, 2],
            },
        ),
        ("F16", "Q8_0", "Q4_0"),
        "qwen35",
        qwen35_weights,
        {"A_log": 1.0, "dt_bias": 1.0, "conv1d": 0.5, "in_proj": 0.4, "out_proj": 0.06},
    ),
}  # fmt: skip


def tokenizer():
    """A byte-level BPE tokenizer with a tiny vocabulary."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS * 4, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>"
    )


def randomise(model, scales):
    """Draw all weights, as float16 holds them; norms about 1, a spread router."""
    random = np.random.default_rng(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = random.standard_normal(tuple(weight.shape), np.float32)
            if name.endswith("norm.weight") and weight.ndim == 1:
                values = weight.numpy() + 0.2 * values
            else:
                values *= next((s for part, s in scales.items() if part in name), 0.12)
            weight.copy_(torch.from_numpy(values.astype(np.float16).astype(np.float32)))


def convert(converter, source, target, pre_tokenizer, *options):
    """Convert to an F32 file with llama.cpp's converter; the pre-tokenizer is given."""
    code = (
        "import sys, runpy\n"
        "sys.path[:0] = sys.argv[1], sys.argv[1] + '/gguf-py'\n"
        "from conversion.base import TextModel\n"
        f"TextModel.get_vocab_base_pre = lambda self, tokenizer: {pre_tokenizer!r}\n"
        "sys.argv = ['convert', *sys.argv[2:]]\n"
        f"runpy.run_path({str(converter / 'convert_hf_to_gguf.py')!r}, run_name='__main__')\n"
    )
    command = [sys.executable, "-c", code, str(converter), str(source), "--outfile", str(target)]
    subprocess.run([*command, "--outtype", "f32", *options], check=True, stdout=sys.stderr)


def tensors_of(path):
    """All tensors of a file as float32."""
    return {
        tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in gguf.GGUFReader(path).tensors
    }


def logits_of(model, ids):
    """Logits [len(ids), VOCABULARY] of a prompt."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def llama_cpp_logits(path, ids):
    """Logits [len(ids), VOCABULARY] by llama.cpp, keys and values in float32."""
    model = llama_cpp.llama_model_load_from_file(
        str(path).encode(), llama_cpp.llama_model_default_params()
    )
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 1
    params.flash_attn_type = params.type_k = params.type_v = 0
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.logits[i] = token, i, 1
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
    assert llama_cpp.llama_decode(context, batch) == 0
    rows = [llama_cpp.llama_get_logits_ith(context, i) for i in range(len(ids))]
    found = [np.ctypeslib.as_array(row, shape=(VOCABULARY,)).copy() for row in rows]
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.array(found)


def difference(expected, found):
    """How far logits are from the expected ones."""
    p, q = (a - np.logaddexp.reduce(a, 1, keepdims=True) for a in (expected, found))
    kl = (np.exp(p) * (p - q)).sum(1)
    gap = np.abs(expected - found)
    return {
        "max_abs_diff_all": float(gap.max()),
        "max_abs_diff_last": float(gap[-1].max()),
        "kl_mean": float(kl.mean()),
        "kl_max": float(kl.max()),
        "argmax_agree": f"{(expected.argmax(1) == found.argmax(1)).sum()}/{len(expected)}",
    }


def load(model, weights):
    """Put weights in; every parameter must be there."""
    state = {name: torch.from_numpy(np.ascontiguousarray(w)) for name, w in weights.items()}
    own = dict(model.named_parameters())
    assert set(own) <= set(state), set(own) - set(state)
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(state[name].reshape(weight.shape))


def make(name, spec, source):
    """Make the files of one model."""
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        spec.config, attn_implementation="eager", dtype=torch.float32
    ).eval()
    randomise(model, spec.scales)
    random = np.random.default_rng(1)
    prompts = [random.integers(2, VOCABULARY, length).tolist() for length in LENGTHS]
    expected, files = {}, {}
    with TemporaryDirectory() as work:
        work = Path(work)
        model.save_pretrained(work / "hf")
        tokenizer().save_pretrained(work / "hf")
        options = ["--no-mtp"] if name == "qwen35" else []
        convert(source, work / "hf", work / "F32.gguf", spec.pre_tokenizer, *options)
        before = {n: w.detach().clone() for n, w in model.named_parameters()}
        load(model, spec.from_gguf(tensors_of(work / "F32.gguf"), spec.config))
        for n, w in model.named_parameters():
            gap = (w - before[n]).abs().max()
            assert gap < 1e-6, (n, gap)
        path = work / "F32.gguf"
        f32 = [difference(logits_of(model, p), llama_cpp_logits(path, p)) for p in prompts]
        for kind in spec.types:
            path = folder / f"{name}-{kind}.gguf"
            quantize = source / "build/bin/llama-quantize"
            subprocess.run([quantize, work / "F32.gguf", path, kind], check=True, stdout=sys.stderr)
            load(model, spec.from_gguf(tensors_of(path), spec.config))
            files[kind] = {"file": path.name, "llama_cpp": []}
            for i, ids in enumerate(prompts):
                logits = logits_of(model, ids)
                native = difference(logits, llama_cpp_logits(path, ids))
                record = {"prompt": i, "f32_file_of_all": f32[i], "native_file": native}
                files[kind]["llama_cpp"].append(record)
                expected[f"{kind}.p{i}"] = logits if kind == spec.types[0] else logits[-1:]
                expected[f"{kind}.p{i}.argmax"] = logits.argmax(1).astype(np.int32)
    np.savez_compressed(folder / "expected.npz", **expected)
    description = {
        "config": spec.config.to_dict(),
        "prompts": [{"ids": ids} for ids in prompts],
        "files": files,
    }
    (folder / "model.json").write_text(json.dumps(description, default=str) + "\n")


def main():
    """Make the models named, or all."""
    source, *names = sys.argv[1:]
    llama_cpp.llama_backend_init()
    for name in names or MODELS:
        make(name, MODELS[name], Path(source).resolve())


if __name__ == "__main__":
    main()
