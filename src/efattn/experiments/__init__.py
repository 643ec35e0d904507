"""Experiments as data: what is run, one runner, one JSON file per run, tables from those files only."""
