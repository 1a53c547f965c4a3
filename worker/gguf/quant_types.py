"""Tensor types: which tokenmill reads, and how many bytes their rows take."""

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

SUPPORTED_TYPES: frozenset[GGMLQuantizationType] = frozenset(
    GGMLQuantizationType[name]
    for name in (
        *("F32", "F16", "BF16"),
        *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
        *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
        *("TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "Q1_0"),
    )
)
"""The types that can be dequantised."""


def supported_names() -> str:
    """List the supported types for a message, in the order of their numbers."""
    return ", ".join(qtype.name for qtype in sorted(SUPPORTED_TYPES))


def quant_block(qtype: GGMLQuantizationType) -> tuple[int, int]:
    """Give the values and the bytes of one quant block of this type."""
    n_values, n_bytes = GGML_QUANT_SIZES[qtype]
    return n_values, n_bytes


def row_bytes(columns: int, qtype: GGMLQuantizationType) -> int:
    """Give the bytes of a row; ``columns`` is a multiple of the type's quant block."""
    n_values, n_bytes = quant_block(qtype)
    return columns // n_values * n_bytes
