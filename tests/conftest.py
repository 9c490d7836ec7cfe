"""Fixtures that several rooms use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A crowded machine must not turn a slow example into a failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real captures and yardsticks beside the checkout; absent elsewhere."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared beside this checkout: real captures and yardsticks are not here")
    return folder
