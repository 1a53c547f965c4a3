"""One machine's decoder, without Ray: GGUF files, tokenizer, models, kernels and the engine."""

from .blas_threads import ask_for_one_thread

# Here and not in entry points: whichever of them it is, this runs before our modules import NumPy.
ask_for_one_thread()
