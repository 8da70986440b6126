"""Kernels of the Indian buffet process: rows of a shard, their features, and the tail of a collapsed shard."""
