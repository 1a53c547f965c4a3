"""Rotary positions of a checkpoint as keys and tensors of GGUF."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from worker.errors import CheckpointError, UnsupportedModelError
from worker.gguf.wording import shown

from .config import Config, head_dim
from .readings import Computed

_BASE = 10000.0
_BY_DIVISORS = ("llama3", "longrope")
_YARN = {
    "scaling.yarn_attn_factor": "attention_factor",
    "scaling.yarn_ext_factor": "extrapolation_factor",
    "scaling.yarn_beta_fast": "beta_fast",
    "scaling.yarn_beta_slow": "beta_slow",
}
_OLDER = (
    *("rope_type", "type", "factor", "low_freq_factor", "high_freq_factor"),
    *("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
    *("extrapolation_factor", "short_factor", "long_factor", "mscale", "mscale_all_dim"),
    "truncate",
)


def rope_parameters(config: Config, kind: str = "full_attention") -> Config:
    """The parameters for one kind of layer, from the field's present or its older form."""
    parameters = config.mapping("rope_parameters")
    if parameters.get(kind) is not None:
        return parameters.mapping(kind)
    if config.get("rope_parameters") is not None:
        return parameters
    older = config.mapping("rope_scaling")
    base = {"rope_theta": config.get("rope_theta", config.get("rotary_emb_base"))}
    partial = config.get("partial_rotary_factor", config.get("rope_pct"))
    return Config(
        config.path,
        {**{name: older.get(name) for name in _OLDER}, **base, "partial_rotary_factor": partial},
    )


def rope_keys(config: Config, default_base: float = _BASE) -> Mapping[str, object]:
    """Base, rotated width and scaling: the keys below ``rope.`` of a model without divisors.

    Raises:
        UnsupportedModelError: the scaling is of a kind that is not computed.
        CheckpointError: a field cannot be used.
    """
    kind = rope_kind(rope_parameters(config))
    if kind in _BY_DIVISORS:
        raise UnsupportedModelError(
            f"{config.path}: the rotary positions are scaled by {kind}, which is not computed in "
            "models of this class; supported: default, linear, yarn"
        )
    return _scaled_keys(config, default_base)


def divisible_rope_keys(config: Config) -> Mapping[str, object]:
    """The same of a model whose frequencies `rope_tensors` may divide."""
    return {**_scaled_keys(config, _BASE), **_long_keys(config)}


def original_context(config: Config) -> int:
    """Positions of the training before the context was extended."""
    parameters = rope_parameters(config)
    whole = config.integer("max_position_embeddings")
    own = config.integer("original_max_position_embeddings", whole)
    return parameters.integer("original_max_position_embeddings", own)


def _scaled_keys(config: Config, default_base: float) -> Mapping[str, object]:
    parameters = rope_parameters(config)
    keys: dict[str, object] = {
        "rope.freq_base": parameters.number("rope_theta", default_base),
        "rope.dimension_count": _width(config),
    }
    kind = rope_kind(parameters)
    if kind == "linear":
        keys["rope.scaling.type"] = "linear"
        keys["rope.scaling.factor"] = parameters.number("factor")
    elif kind == "yarn":
        keys |= _yarn_keys(config, parameters)
    return keys


def _width(config: Config) -> int:
    """Leading values of a head that are rotated."""
    return int(head_dim(config) * rope_parameters(config).number("partial_rotary_factor", 1.0))


def _long_keys(config: Config) -> Mapping[str, object]:
    """Where longrope's long divisors begin, and what it multiplies attention by."""
    parameters = rope_parameters(config)
    if rope_kind(parameters) != "longrope":
        return {}
    original = original_context(config)
    longer = config.integer("max_position_embeddings") / original
    scale = parameters.number("factor", longer)
    own = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    return {
        "rope.scaling.original_context_length": original,
        "rope.scaling.attn_factor": parameters.number("attention_factor", own),
    }


def rope_kind(parameters: Config) -> str:
    """The kind of scaling, ``default`` for none.

    Raises:
        UnsupportedModelError: it is not computed.
    """
    kind = parameters.text("rope_type") or parameters.text("type") or "default"
    kind = {"su": "longrope"}.get(kind, kind)
    if kind not in ("default", "linear", "yarn", "llama3", "longrope"):
        raise UnsupportedModelError(
            f"{parameters.path}: the rotary positions are scaled by '{shown(kind)}'; supported: "
            "default, linear, yarn, llama3, longrope"
        )
    return kind


def _yarn_keys(config: Config, parameters: Config) -> Mapping[str, object]:
    factor = parameters.number("factor")
    for name in ("mscale", "mscale_all_dim"):
        if parameters.get(name) is not None:
            raise UnsupportedModelError(
                f"{config.path}: the rotary positions use {name}, which is not computed; take a "
                "model without it"
            )
    original = parameters.integer(
        "original_max_position_embeddings", config.integer("max_position_embeddings")
    )
    keys: dict[str, object] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": original,
    }
    truncate = parameters.get("truncate", True)
    if truncate is not True:
        keys["rope.scaling.yarn_truncate"] = truncate
    for key, name in _YARN.items():
        if parameters.get(name) is not None:
            keys[f"rope.{key}"] = parameters.number(name)
    return keys


def rope_tensors(config: Config) -> Mapping[str, Computed]:
    """Factors that frequencies are divided by: of Llama 3.1, and of longrope."""
    parameters = rope_parameters(config)
    kind = rope_kind(parameters)
    if kind == "llama3":
        return {"rope_freqs.weight": Computed(_llama3_divisors(config, parameters))}
    if kind == "longrope":
        return {
            f"rope_factors_{name}.weight": Computed(
                _factors(parameters, f"{name}_factor", _width(config))
            )
            for name in ("long", "short")
        }
    return {}


def _llama3_divisors(config: Config, parameters: Config) -> NDArray[np.float32]:
    """Long wavelengths are stretched, short ones kept, those between blended (Llama 3.1)."""
    dimensions = head_dim(config)
    base = np.float32(parameters.number("rope_theta", _BASE))
    exponents = np.arange(0, dimensions, 2, dtype=np.float32) / np.float32(dimensions)
    wavelengths = np.float32(2 * math.pi) * base**exponents
    factor = parameters.number("factor", 8.0)
    low = parameters.number("low_freq_factor", 1.0)
    high = parameters.number("high_freq_factor", 4.0)
    original = parameters.integer("original_max_position_embeddings", 8192)
    if not (factor > 0 and 0 < low < high):
        raise CheckpointError(
            f"{config.path}: the rotary positions have factor {factor:g}, low_freq_factor {low:g} "
            f"and high_freq_factor {high:g}, expected positive numbers, the last one largest; "
            "correct the file"
        )
    smooth = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    divisors = 1 / ((1 - smooth) / factor + smooth)
    divisors = np.where(wavelengths < original / high, 1.0, divisors)
    return np.where(wavelengths > original / low, factor, divisors).astype(np.float32)


def _factors(parameters: Config, name: str, width: int) -> NDArray[np.float32]:
    value = parameters.get(name)
    if (
        not isinstance(value, list)
        or len(value) != width // 2
        or not all(type(each) in (int, float) for each in value)
    ):
        raise parameters.wrong(name, value, f"a list of {width // 2} numbers")
    return np.array(value, np.float32)
