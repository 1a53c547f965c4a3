"""Tokenizers, detokenizer and chat templates built from GGUF metadata."""
