"""The GGUF file format: a validated memory-mapped reader and dequantisation."""
