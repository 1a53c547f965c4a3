"""Write a llama GGUF file of random weights, for benches at sizes and types that are no download.

Usage: ``python configs/make_synthetic_model.py TOKENIZER.gguf OUTPUT.gguf --size 1B --type Q5_K``

The tokenizer is that of the GGUF file named first. Quant blocks are drawn as they are stored, so
memory holds one tensor at a time, in its own type. The same arguments give the same bytes. The text
such a model writes means nothing; its speed is that of a real model of its size and types.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

MIX = "Q4_K_M"
SEED = 20_241_129
F32 = GGMLQuantizationType.F32


@dataclass(frozen=True, slots=True)
class Sizes:
    """Dimensions of a llama; all columns are multiples of 256, as the K types need."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int


SIZES = {
    "tiny": Sizes(hidden=256, intermediate=512, layers=2, heads=4, kv_heads=2),
    "1B": Sizes(hidden=2048, intermediate=8192, layers=16, heads=32, kv_heads=8),
    "3B": Sizes(hidden=3072, intermediate=8192, layers=28, heads=24, kv_heads=8),
}


@dataclass(frozen=True, slots=True)
class BlockScales:
    """Where a stored quant block keeps its float16 scales; all its other bytes are codes.

    Attributes:
        scale: byte offset of the scale.
        minimum: byte offset of the minimum; None where the type has none. Then scales of both signs
            bring the mean to zero, since the codes of a block need not be centred.
        centre: minimum / scale that moves the middle of the codes to zero.
    """

    scale: int
    minimum: int | None = None
    centre: float = 0.0


# Offsets as in the block_* structs of ggml-common.h; the K types subtract their minimum.
BLOCK_SCALES = {
    GGMLQuantizationType.Q4_0: BlockScales(0),
    GGMLQuantizationType.Q4_1: BlockScales(0, 2, -7.5),
    GGMLQuantizationType.Q5_0: BlockScales(0),
    GGMLQuantizationType.Q5_1: BlockScales(0, 2, -15.5),
    GGMLQuantizationType.Q8_0: BlockScales(0),
    GGMLQuantizationType.Q2_K: BlockScales(80, 82, 1.5),
    GGMLQuantizationType.Q3_K: BlockScales(108),
    GGMLQuantizationType.Q4_K: BlockScales(0, 2, 7.5),
    GGMLQuantizationType.Q5_K: BlockScales(0, 2, 15.5),
    GGMLQuantizationType.Q6_K: BlockScales(208),
    GGMLQuantizationType.IQ4_NL: BlockScales(0),
    GGMLQuantizationType.IQ4_XS: BlockScales(0),
}
FLOATS = (GGMLQuantizationType.F16, GGMLQuantizationType.BF16, F32)
TYPE_NAMES = (MIX, *(qtype.name for qtype in (*BLOCK_SCALES, *FLOATS)))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the model: its name, its type and its shape, rows first."""

    name: str
    qtype: GGMLQuantizationType
    shape: tuple[int, ...]

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in bytes."""
        values, n_bytes = GGML_QUANT_SIZES[self.qtype]
        return (*self.shape[:-1], self.shape[-1] // values * n_bytes)


def model_tensors(sizes: Sizes, type_name: str, vocab_size: int) -> Iterator[Tensor]:
    """Every tensor of the model, in the order of the file; the output head is the embedding."""
    kv = sizes.hidden // sizes.heads * sizes.kv_heads
    yield Tensor("token_embd.weight", _high(type_name), (vocab_size, sizes.hidden))
    yield Tensor("output_norm.weight", F32, (sizes.hidden,))
    for layer in range(sizes.layers):
        base = _base(type_name)
        mixed = _high(type_name) if keeps_precision(layer, sizes.layers) else base
        for name, qtype, shape in (
            ("attn_norm", F32, (sizes.hidden,)),
            ("attn_q", base, (sizes.hidden, sizes.hidden)),
            ("attn_k", base, (kv, sizes.hidden)),
            ("attn_v", mixed, (kv, sizes.hidden)),
            ("attn_output", base, (sizes.hidden, sizes.hidden)),
            ("ffn_norm", F32, (sizes.hidden,)),
            ("ffn_gate", base, (sizes.intermediate, sizes.hidden)),
            ("ffn_up", base, (sizes.intermediate, sizes.hidden)),
            ("ffn_down", mixed, (sizes.hidden, sizes.intermediate)),
        ):
            yield Tensor(f"blk.{layer}.{name}.weight", qtype, shape)


def keeps_precision(layer: int, layers: int) -> bool:
    """Whether the Q4_K_M mix stores value and down projections of this layer in Q6_K.

    So do the first and the last eighth of the layers and each third one between, as in files that
    llama.cpp makes.
    """
    eighth = layers // 8
    middle = eighth <= layer < layers - eighth
    return not middle or (layer - eighth) % 3 == 2


def random_tensor(tensor: Tensor, seed: tuple[int, ...]) -> NDArray[np.generic]:
    """The tensor as stored: uint8 ``stored_shape``, or float32 ones for a norm.

    Values have a mean of about 0 and a standard deviation of about 1 / sqrt(columns), so that a
    product leaves the size of activations as it is.
    """
    if len(tensor.shape) == 1:
        return np.ones(tensor.shape, np.float32)
    random = np.random.default_rng(seed)
    deviation = tensor.shape[-1] ** -0.5
    if tensor.qtype in FLOATS:
        values = random.standard_normal(tensor.shape, np.float32) * np.float32(deviation)
        return quantize(values, tensor.qtype).view(np.uint8)
    blocks = np.prod(tensor.shape) // GGML_QUANT_SIZES[tensor.qtype][0]
    mean_scale = deviation / _deviation_at_scale_1(tensor.qtype)
    scales = random.uniform(0.8 * mean_scale, 1.2 * mean_scale, int(blocks))
    return random_blocks(tensor.qtype, scales, random).reshape(tensor.stored_shape)


def random_blocks(
    qtype: GGMLQuantizationType, scales: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.uint8]:
    """Quant blocks with random codes and these scales, uint8 [blocks, block_bytes]."""
    place = BLOCK_SCALES[qtype]
    n_bytes = GGML_QUANT_SIZES[qtype][1]
    blocks = random.integers(0, 256, (len(scales), n_bytes), np.uint8)
    if place.minimum is None:
        scales = scales * random.choice((-1.0, 1.0), len(scales))
    else:
        _put_halves(blocks, place.minimum, place.centre * scales)
    _put_halves(blocks, place.scale, scales)
    return blocks


def write_model(tokenizer: Path, output: Path, sizes: Sizes, type_name: str) -> None:
    """Write the model under a temporary name and give it its own when it is complete."""
    partial = output.with_name(output.name + ".part")
    writer = GGUFWriter(partial, "llama")
    vocab_size = copy_tokenizer(GGUFReader(tokenizer), writer)
    _add_sizes(writer, sizes, vocab_size)
    writer.add_name(f"synthetic {type_name}")
    tensors = list(model_tensors(sizes, type_name, vocab_size))
    for tensor in tensors:
        dtype = np.dtype(np.float32 if tensor.qtype == F32 else np.uint8)
        shape = tensor.shape if tensor.qtype == F32 else tensor.stored_shape
        n_bytes = int(np.prod(tensor.stored_shape))
        writer.add_tensor_info(tensor.name, shape, dtype, n_bytes, tensor.qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for number, tensor in enumerate(tensors):
        writer.write_tensor_data(random_tensor(tensor, (SEED, number)))
    writer.close()
    partial.replace(output)


def copy_tokenizer(source: GGUFReader, writer: GGUFWriter) -> int:
    """Copy every key of the tokenizer; the number of its tokens."""
    for name, field in source.fields.items():
        if name.startswith("tokenizer."):
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1])
    return len(source.fields["tokenizer.ggml.tokens"].data)


def _add_sizes(writer: GGUFWriter, sizes: Sizes, vocab_size: int) -> None:
    writer.add_block_count(sizes.layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(sizes.hidden)
    writer.add_feed_forward_length(sizes.intermediate)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100_000.0)
    writer.add_vocab_size(vocab_size)


def _base(type_name: str) -> GGMLQuantizationType:
    """Type of most matrices."""
    return GGMLQuantizationType.Q4_K if type_name == MIX else GGMLQuantizationType[type_name]


def _high(type_name: str) -> GGMLQuantizationType:
    """Type of the matrices that the mix stores more precisely."""
    return GGMLQuantizationType.Q6_K if type_name == MIX else GGMLQuantizationType[type_name]


@cache
def _deviation_at_scale_1(qtype: GGMLQuantizationType) -> float:
    """Standard deviation of values with random codes and a scale of 1."""
    blocks = random_blocks(qtype, np.ones(4096), np.random.default_rng(SEED))
    return float(dequantize(blocks, qtype).std())


def _put_halves(blocks: NDArray[np.uint8], offset: int, values: NDArray[np.float64]) -> None:
    halves = values.astype("<f2")[:, None].view(np.uint8)  # [blocks, 2]
    blocks[:, offset : offset + 2] = halves


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", type=Path, help="a GGUF file whose tokenizer is taken")
    parser.add_argument("output", type=Path, help="the file to write")
    parser.add_argument("--size", choices=SIZES, default="3B")
    parser.add_argument("--type", choices=TYPE_NAMES, default=MIX, help=f"{MIX}: Q4_K and Q6_K")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = _arguments()
    sizes = SIZES[arguments.size]
    write_model(arguments.tokenizer, arguments.output, sizes, arguments.type)
