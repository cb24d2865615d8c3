"""What must never be answered: files outside of the runs folder, strangers, pages of other sites."""

import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from .serving import Board, serving, started, until

SECRET = "the secret of the neighbour"
# What a run may claim to have logged.
LOGGED = [
    *("media/page.png", "media/page.html", "media/link.png", "media/../../../secret.png", "../secret.png"),
    *("config.json", "media/../config.json", "/etc/passwd", "media/", "checkpoints/x.png", "media/\0.png"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A runs folder with a neighbour, and links that lead to it."""
    place = tmp_path_factory.mktemp("place")
    (place / "secret.txt").write_text(SECRET)
    (place / "secret.png").write_text(SECRET)
    outside = started(place / "outside", [1.0])
    (outside.folder / "pictures").mkdir()
    (outside.folder / "pictures" / "secret.png").write_text(SECRET)
    os.symlink(place / "outside", place / "linked-runs-target")
    runs = place / "runs"
    run = started(runs, [1.0])
    os.rename(run.folder, runs / "good")
    os.symlink(outside.folder, runs / "link")
    pictures = runs / "good" / "pictures"
    pictures.mkdir()
    os.symlink(place / "secret.png", pictures / "link.png")
    (pictures / "inside.png").write_text("a picture")
    other = started(runs, [1.0])
    os.rename(other.folder, runs / "linked-pictures")
    os.symlink(outside.folder / "pictures", runs / "linked-pictures" / "pictures")
    linked = started(runs, [1.0])
    os.rename(linked.folder, runs / "linked-journal")
    (runs / "linked-journal" / "journal.md").unlink()
    os.symlink(place / "secret.txt", runs / "linked-journal" / "journal.md")
    steered = started(runs, [1.0])
    os.rename(steered.folder, runs / "linked-control")
    os.rename(runs / "linked-control" / "control", place / "control")
    os.symlink(place / "control", runs / "linked-control" / "control")
    logging = started(runs, [1.0])
    os.rename(logging.folder, runs / "logging")
    media = runs / "logging" / "media"
    media.mkdir()
    (media / "page.png").write_text("<script>alert(1)</script>")
    (media / "page.html").write_text("<script>alert(1)</script>")
    os.symlink(place / "secret.png", media / "link.png")
    for file in LOGGED:
        line = json.dumps(
            {"event": "logged", "time": 1.0, "step": 1, "name": file, "kind": "image", "file": file}
        )
        table = json.dumps(
            {"event": "logged", "time": 1.0, "step": 1, "name": file, "kind": "table", "file": file}
        )
        with open(runs / "logging" / "events.jsonl", "a") as events:
            events.write(f"{line}\n{table}\n")
    return place


@pytest.fixture(scope="module")
def board(place: Path):
    with serving(place / "runs") as found:
        yield found


def ways_out(place: Path) -> list[str]:
    up = [
        "../secret.txt",
        "../secret.png",
        "../../secret.png",
        "..\\secret.png",
        f"{place}/secret.png",
        "link.png",
    ]
    up += [
        "/etc/passwd",
        "good/../../secret.png",
        "....//secret.png",
        "inside.png\0.txt",
        "~/secret.png",
        ".",
    ]
    encoded = [quote(way, safe="") for way in up]
    return [
        *encoded,
        *(quote(way, safe="") for way in encoded),
        "%2e%2e%2fsecret.png",
        "%c0%ae%c0%ae/secret.png",
    ]


def test_no_spelling_leads_out_of_the_folder(board: Board, place: Path):
    assert board.ask("/api/picture?run=good&name=inside.png").body == b"a picture"
    names = [
        "link",
        "../outside",
        "linked-runs-target",
        str(place / "outside"),
        "..",
        ".",
        "",
        "good/../good",
    ]
    paths = [f"/api/picture?run=good&name={way}" for way in ways_out(place)]
    paths += [
        f"/api/picture?run={quote(name, safe='')}&name=secret.png" for name in [*names, "linked-pictures"]
    ]
    paths += [f"/api/media?run=good&file={way}" for way in ways_out(place)]
    answers = ("run", "live", "compare", "logged", "system")
    paths += [f"/api/{what}?run={quote(name, safe='')}" for what in answers for name in names]
    paths += [f"/api/sweep?sweep={way}" for way in ways_out(place)]
    paths += [f"/static/{way}" for way in ways_out(place)]
    paths += [
        "/../secret.txt",
        "/static/../../secret.txt",
        "/..%2fsecret.txt",
        "//etc/passwd",
        "/static//etc/passwd",
    ]
    for path in paths:
        answer = board.ask(path)
        assert answer.status in (400, 404), path
        assert SECRET.encode() not in answer.body
        assert b"root:" not in answer.body
    assert board.steer("../outside", "stop").status == 404


def test_media_are_pictures_of_the_run_and_never_a_page(board: Board):
    until(lambda: board.shelf.get("logging").row["logged"] == 2 * len(LOGGED))
    shown = board.get("media", run="logging", file="media/page.png")
    assert (shown.status, shown.headers["content-type"]) == (200, "image/png")
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in shown.headers["content-security-policy"]
    for file in [*LOGGED[1:], "../logging/media/page.png", "media/other.png"]:
        for answer in (
            board.get("media", run="logging", file=file),
            board.get("entry", run="logging", name=file, kind="table", step=1),
        ):
            assert answer.status in (200, 404, 409), file
            assert answer.status != 200 or answer.json["content"] is None, file
            assert SECRET.encode() not in answer.body
            assert b"<script>" not in answer.body
            assert b"root:" not in answer.body


def test_a_journal_that_is_a_link_is_not_read(board: Board):
    answer = board.get("run", run="linked-journal")
    assert answer.status == 404
    assert "'journal.md' is not inside the run linked-journal" in answer.json["error"]
    assert SECRET.encode() not in answer.body


def test_a_command_is_not_written_outside(board: Board, place: Path):
    answer = board.steer("linked-control", "pause")
    assert (answer.status, list((place / "control").iterdir())) == (404, [])
    assert "'control' is not inside the run linked-control" in answer.json["error"]


def test_every_answer_says_what_a_browser_may_do_with_it(board: Board):
    for path in ("/", "/static/app.js", "/api/run?run=good", "/api/run?run=none", "/nothing"):
        headers = board.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
    assert b"<script>" not in board.ask("/").body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[", "", "10.0.0.1"]
)
def test_another_name_for_this_machine_is_refused(board: Board, host: str):
    answer = board.ask("/", Host=host)
    assert answer.status == 403
    assert b"this board serves 127.0.0.1 and localhost only" in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_names_that_are_this_machine(board: Board, host: str):
    assert board.ask("/", Host=f"{host}:{board.port}").status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1", "["]
)
def test_pages_of_other_sites_may_not_ask(board: Board, origin: str):
    for method, path in (("GET", "/api/run?run=good"), ("POST", "/api/steer"), ("OPTIONS", "/api/steer")):
        answer = board.ask(path, method=method, body="{}", Origin=origin, Content_Type="application/json")
        assert answer.status == 403
        assert b"only the board's own pages are allowed" in answer.body


def test_a_form_of_another_site_is_no_command(board: Board):
    """A browser sends text without asking before; what it would have to ask for is demanded."""
    body = '{"run": "good", "command": "note", "arguments": {"text": "from outside"}}'
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = board.ask("/api/steer", method="POST", body=body, Content_Type=kind)
        assert (answer.status, answer.json["error"]) == (400, "a command is sent as application/json")
    own = f"http://127.0.0.1:{board.port}"
    answer = board.ask("/api/steer", method="POST", body=body, Content_Type="application/json", Origin=own)
    assert answer.status == 200
