"""Seeded, structure-aware fuzzing of the readers and of whole conversions: `python -m tests.fuzz --help`."""
