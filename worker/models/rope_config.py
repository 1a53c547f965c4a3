"""Rotary embeddings as the metadata of a file describe them."""

from dataclasses import dataclass
from math import log
from typing import Literal

from worker.errors import GGUFError, UnsupportedModelError
from worker.gguf import ModelFile
from worker.gguf.wording import shown

from .key_reader import KeyReader

RopeLayout = Literal["pairs", "halves"]

SHORT_DIVISORS, LONG_DIVISORS = "rope_factors_short.weight", "rope_factors_long.weight"

_DEFAULT_BASE = 10_000.0
_YARN_FAST, _YARN_SLOW = 32.0, 1.0  # as in the paper


@dataclass(frozen=True, slots=True)
class YarnConfig:
    """YaRN (Peng et al., 2023): only long wavelengths are stretched by the factor.

    Attributes:
        original_length: positions of the training before the context was extended.
        fast: a pair that turns more often within them keeps its wavelength.
        slow: a pair that turns less often is stretched; those between partly.
        share: of unstretched wavelengths in the mix; 1 in the paper.
        is_truncated: whether the limits between the kinds are whole pairs, as in the paper's code.
    """

    original_length: int
    fast: float
    slow: float
    share: float
    is_truncated: bool = True


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """A rotary embedding.

    Attributes:
        base: of the wavelengths.
        dimensions: leading values of a head that are rotated; even.
        layout: "pairs": values 2 i and 2 i + 1 rotate together; "halves": values i and
            i + dimensions / 2.
        factor: positions are divided by it (linear scaling); 1 for none.
        yarn: where the factor is not for all wavelengths alike.
        magnitude: factor on the rotated values, so that attention stays as sharp as it was.
        original_length: positions of sequences that the file's short divisors are for; its long
            ones are for longer sequences (LongRoPE). None where there is no such choice.
    """

    base: float
    dimensions: int
    layout: RopeLayout
    factor: float = 1.0
    yarn: YarnConfig | None = None
    magnitude: float = 1.0
    original_length: int | None = None


def rope_base(keys: KeyReader, name: str) -> float | None:
    """A base of rotary wavelengths, None when the file gives none."""
    return keys.optional_between(name, 1.0, 1e30)


def read_rope(file: ModelFile, keys: KeyReader, head_dim: int, layout: RopeLayout) -> RopeConfig:
    """The rotary embedding of a file; all of a head is rotated unless it says otherwise.

    Raises:
        GGUFError: a value cannot be.
        UnsupportedModelError: a kind of scaling that tokenmill does not know.
    """
    if head_dim % 2:
        raise GGUFError(
            f"{keys.path}: a head has {head_dim} values, an odd number that cannot be rotated in "
            f"pairs; check {keys.key('attention.key_length')} and "
            f"{keys.key('attention.head_count')}, and convert the model again"
        )
    dimensions = keys.optional_positive("rope.dimension_count") or head_dim
    if dimensions % 2 or dimensions > head_dim:
        raise GGUFError(
            f"{keys.path}: key {keys.key('rope.dimension_count')} is {dimensions}, expected an even"
            f" number up to the {head_dim} values of a head; convert the model again"
        )
    base = rope_base(keys, "rope.freq_base") or _DEFAULT_BASE
    kind = keys.optional_text("rope.scaling.type")
    if kind is None and LONG_DIVISORS in file.tensors:
        kind = "longrope"  # Phi-3's converter leaves it out
    return _scaled(keys, RopeConfig(base, dimensions, layout), kind)


def rotates_as_long(max_tokens: int, long_from: int | None) -> bool:
    """Whether a model takes a sequence as a long one: by what it may grow to, of itself alone.

    Args:
        max_tokens: most tokens of the sequence; the last one is not fed to the model.
        long_from: position that short sequences do not reach, see `ModelConfig`.
    """
    return long_from is not None and max_tokens - 1 > long_from


def _scaled(keys: KeyReader, rope: RopeConfig, kind: str | None) -> RopeConfig:
    """Add the scaling; a factor without a kind is linear."""
    factor, magnitude = 1.0, keys.factor("rope.scaling.attn_factor") or 1.0
    yarn, original_length = None, None
    match kind:
        case "none":
            _read_factor(keys)
        case None | "linear":
            factor = _read_factor(keys)
        case "yarn":
            factor = _read_factor(keys)
            yarn = _read_yarn(keys)
            magnitude *= _yarn_magnitude(keys, factor, yarn.share)
        case "longrope":
            original_length = _original_length(keys)
        case _:
            raise UnsupportedModelError(
                f"{keys.path}: key {keys.key('rope.scaling.type')} is '{shown(kind)}'; supported: "
                "none, linear, yarn, longrope, and factors in the tensor rope_freqs.weight"
            )
    return RopeConfig(
        rope.base, rope.dimensions, rope.layout, factor, yarn, magnitude, original_length
    )


def _read_factor(keys: KeyReader) -> float:
    """Factor of scaling, under its present or its older key; 1 for none."""
    present, older = keys.factor("rope.scaling.factor"), keys.factor("rope.scale_linear")
    return present or older or 1.0


def _read_yarn(keys: KeyReader) -> YarnConfig:
    share = keys.optional_number("rope.scaling.yarn_ext_factor")  # -1 for not set
    return YarnConfig(
        _original_length(keys),
        keys.factor("rope.scaling.yarn_beta_fast") or _YARN_FAST,
        keys.factor("rope.scaling.yarn_beta_slow") or _YARN_SLOW,
        1.0 if share is None or share < 0 else share,
        keys.optional_flag("rope.scaling.yarn_truncate") is not False,  # folders alone can say so
    )


def _original_length(keys: KeyReader) -> int:
    name = "rope.scaling.original_context_length"
    return keys.optional_positive(name) or keys.positive("context_length")


def _yarn_magnitude(keys: KeyReader, factor: float, share: float) -> float:
    """Equation 22 of the paper, unless the checkpoint has a value of its own."""
    own = keys.factor("rope.scaling.yarn_attn_factor")
    if own is not None:
        return own
    return 1.0 + 0.1 * log(factor) if factor > 1 and share else 1.0
