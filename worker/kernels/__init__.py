"""Compiled kernels: pure functions of arrays and ints, each with a naive twin in tests."""
