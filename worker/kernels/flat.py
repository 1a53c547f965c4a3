"""The form in which kernels take their arrays."""

import numpy as np
from numpy.typing import NDArray


def flat(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give a float32 array as one dimension, without copying.

    A NumPy float64 scalar turns all that follows into float64, and reshaping an array with gaps
    makes a copy that a kernel would write to in vain: both stop here.
    """
    assert array.dtype == np.float32, f"{array.dtype} where float32 was expected"
    assert array.flags.c_contiguous, f"an array with strides {array.strides} is not contiguous"
    return array.reshape(-1)
