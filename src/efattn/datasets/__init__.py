"""Data sets, as tidy columns."""
