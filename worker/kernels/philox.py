"""Philox4x64-10 (Salmon et al. 2011): random numbers that are a function of a counter and a key."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .jit import kernel

_FIRST = np.uint64(0xD2E7470EE14C6C93)
_SECOND = np.uint64(0xCA5A826395121157)
_FIRST_WEYL = np.uint64(0x9E3779B97F4A7C15)
_SECOND_WEYL = np.uint64(0xBB67AE8584CAA73B)
_ROUNDS = 10


@intrinsic
def _high_product(typingctx: Any, a: Any, b: Any) -> Any:
    """The upper 64 bits of the product of two uint64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@kernel
def philox(counter: np.uint64, key0: np.uint64, key1: np.uint64) -> Any:
    """Four uint64 from the counter (counter, 0, 0, 0) and the key (key0, key1)."""
    a, b, c, d = counter, np.uint64(0), np.uint64(0), np.uint64(0)
    for _ in range(_ROUNDS):
        p_high, p_low = _high_product(_FIRST, a), _FIRST * a
        q_high, q_low = _high_product(_SECOND, c), _SECOND * c
        a, b, c, d = q_high ^ b ^ key0, q_low, p_high ^ d ^ key1, p_low
        key0, key1 = key0 + _FIRST_WEYL, key1 + _SECOND_WEYL
    return a, b, c, d


@kernel
def uniform(counter: np.uint64, key0: np.uint64, key1: np.uint64) -> float:
    """The first of the four words of `philox` as a number in [0, 1) with 53 bits."""
    return np.float64(philox(counter, key0, key1)[0] >> np.uint64(11)) * 2.0**-53
