"""Compiled samplers, each with a plain-Python twin: a folder a family, and `common`."""
