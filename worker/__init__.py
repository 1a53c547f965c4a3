"""One machine's decoder, without Ray: GGUF files, tokenizer, models, kernels and the engine."""
