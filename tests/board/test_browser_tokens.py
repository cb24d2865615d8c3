"""Signing in, in a real browser: what is in its address, its history and its requests, and what a viewer sees."""

from pathlib import Path
from typing import Any

import pytest

from lapwing.board import Tokens

from .serving import serving, started
from .test_browser import page, shown

__all__ = ["page"]  # A fixture.

STEER, VIEW = "the-token-to-steer", "the-token-to-watch"


@pytest.mark.slow
def test_the_token_of_the_link_opens_the_board_and_is_sent_once(page: Any, tmp_path: Path):
    run = started(tmp_path, [1.0, 0.5])
    sent = []
    page.on("request", lambda request: sent.append((request.url, request.headers, request.post_data or "")))
    with serving(tmp_path, Tokens(STEER, VIEW)) as board:
        page.goto(f"{board.address}#token={VIEW}")
        page.get_by_role("link", name=run.name).wait_for()
        assert "token" not in page.url
        page.get_by_role("link", name=run.name).click()
        page.locator("h1", has_text=run.name).wait_for()
        page.get_by_text("learning_rate").first.wait_for()
        assert page.locator(".steering").is_hidden()
        # The link with more rights, opened in the same page.
        page.goto(f"{board.address}#token={STEER}")
        page.get_by_role("link", name=run.name).click()
        page.locator(".steering").wait_for()
        assert "token" not in page.url
        page.go_back()
        assert "token" not in page.url
    with_token = [(url, body) for url, headers, body in sent if STEER in body or VIEW in body]
    assert [url for url, _ in with_token] == [f"{board.address}api/sign-in"] * 2
    for url, headers, _ in sent:
        assert "token-to" not in url
        assert "token-to" not in str(headers)
        assert not headers.get("referer")


@pytest.mark.slow
def test_without_a_token_the_page_asks_for_it(page: Any, tmp_path: Path):
    run = started(tmp_path, [1.0])
    with serving(tmp_path, Tokens(STEER)) as board:
        page.goto(f"{board.address}#/run/{run.name}")
        page.get_by_label("Token").fill("a wrong one")
        page.get_by_role("button", name="Open").click()
        shown(page, "this is not the token")
        page.get_by_label("Token").fill(STEER)
        page.get_by_role("button", name="Open").click()
        # It goes where it was asked to go.
        page.locator("h1", has_text=run.name).wait_for()
