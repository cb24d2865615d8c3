"""The published data file, if it is available next to the repository."""

from pathlib import Path

import pytest

LITE_FILE = Path(__file__).parents[3] / "shared" / "data" / "dmm-lite-1032-steps.json"

needs_lite_file = pytest.mark.skipif(
    not LITE_FILE.exists(),
    reason="the published data file ../shared/data/dmm-lite-1032-steps.json is not here",
)
