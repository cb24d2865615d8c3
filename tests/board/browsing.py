"""A real browser, driven as a person would, or the reason why there is none."""

import shutil

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    """Where chromium is; a test that asks is skipped where there is none."""
    pytest.importorskip("playwright", reason="playwright, which drives a browser, is not installed")
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no chromium is installed; on Debian: apt-get install chromium")
