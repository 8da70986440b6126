"""Kernels of variational inference."""
