"""The results page."""

from pathlib import Path


def write(pages: Path, folder: Path) -> None:
    """To come."""
