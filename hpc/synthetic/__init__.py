"""Synthetic tables: their rows, their missing cells, rare levels, and how useful and how risky they are."""
