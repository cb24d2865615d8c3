import pytest

from .browsing import ARGUMENTS, chromium


@pytest.fixture(scope="package")
def browser():
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()
