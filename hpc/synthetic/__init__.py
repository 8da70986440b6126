"""Synthetic tables: their rows, their missing cells, rare levels, and their utility and risk."""
