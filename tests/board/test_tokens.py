"""Who may watch, who may steer, and what becomes of those who guess."""

import json
import subprocess
from pathlib import Path

import pytest

from lapwing.board import Tokens
from lapwing.board._tokens import IN_ALL, PER_ADDRESS, WINDOW_S, Guesses

from .serving import Answer, Board, serving, started

STEER, VIEW = "the-token-to-steer", "the-token-to-watch"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    run = started(runs, [1.0])
    run.folder.rename(runs / "good")
    return runs


@pytest.fixture
def board(runs: Path):
    with serving(runs, Tokens(STEER, VIEW)) as found:
        yield found


def sign_in(board: Board, token: object, **headers: str) -> Answer:
    body = json.dumps({"token": token})
    return board.ask(
        "/api/sign-in", method="POST", body=body, **{"Content_Type": "application/json", **headers}
    )


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def test_nothing_is_answered_without_a_token(board: Board):
    for path in ("/", "/static/app.js", "/api/run?run=good", "/api/live", "/nothing", "/api/sign-in"):
        answer = board.ask(path)
        assert answer.status == 401
        assert answer.body.startswith(
            b"this board needs its token; open the address with #token= that `lapwing"
        )
    assert board.steer("good", "pause").status == 401
    for wrong in ("", STEER[:-1], STEER + "x", "x" * 10_000):
        assert board.ask("/", Authorization=f"Bearer {wrong}").status == 401
        assert board.ask("/", Cookie=f"lapwing-board-{board.port}={wrong}").status == 401
    assert board.ask("/", Cookie=f"lapwing-board-{board.port}={STEER}").status == 401
    assert board.ask("/", Authorization=f"Basic {STEER}").status == 401
    assert board.ask("/api/run?run=good", Authorization=f"Bearer {STEER}").status == 200
    # A name of the network is right here, since others may ask; another origin is still wrong.
    assert board.ask("/", Host="cluster.example", Authorization=f"Bearer {STEER}").status == 200
    wrong = board.ask("/", Origin="http://evil.example", Authorization=f"Bearer {STEER}")
    assert wrong.status == 403


def test_a_token_in_an_address_is_refused_even_if_it_is_right(board: Board):
    """A proxy would log it, and the history would keep it."""
    for path in (f"/?token={STEER}", f"/api/run?run=good&token={STEER}"):
        answer = board.ask(path, Authorization=f"Bearer {STEER}")
        assert (answer.status, "set-cookie" in answer.headers) == (400, False)
        assert answer.body.startswith(
            b"a token in the address would be logged; open the address with #token="
        )


def test_the_token_is_exchanged_for_a_cookie_that_does_not_have_it(board: Board):
    answer = sign_in(board, STEER)
    assert (answer.status, answer.json) == (200, {"may_steer": True})
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
    assert f"lapwing-board-{board.port}=" in cookie
    assert STEER not in cookie
    assert answer.headers["referrer-policy"] == "no-referrer"
    for path in ("/", "/static/app.js", "/api/run?run=good"):
        assert board.ask(path, Cookie=cookie_of(answer)).status == 200


def test_a_cookie_ends_with_its_board(board: Board, runs: Path):
    cookie = cookie_of(sign_in(board, STEER)).partition("=")[2]
    with serving(runs, Tokens(STEER, VIEW)) as other:
        assert other.ask("/", Cookie=f"lapwing-board-{other.port}={cookie}").status == 401


def test_somebody_who_watches_can_see_everything_and_post_nothing(board: Board):
    note = json.dumps({"run": "good", "command": "note", "arguments": {"text": "from a viewer"}})
    cookie = {"Cookie": cookie_of(sign_in(board, VIEW))}
    for access in (cookie, {"Authorization": f"Bearer {VIEW}"}):
        told = board.ask("/api/run?run=good", **access)
        assert (told.status, told.json["may_steer"]) == (200, False)
        for path in ("/api/steer", "/api/run", "/", "/nothing"):
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
                answer = board.ask(path, method=method, body=note, Content_Type="application/json", **access)
                assert answer.status == 403
                assert answer.body == b"this token is for watching; to steer, use the other one\n"
    assert "from a viewer" not in (board.shelf.get("good").run.folder / "journal.md").read_text()
    steering = {"Cookie": cookie_of(sign_in(board, STEER))}
    assert board.ask("/api/run?run=good", **steering).json["may_steer"] is True
    answer = board.ask("/api/steer", method="POST", body=note, Content_Type="application/json", **steering)
    assert answer.status == 200


def test_with_a_token_to_watch_alone_nobody_steers(runs: Path):
    with serving(runs, Tokens(view=VIEW)) as board:
        assert board.ask("/", Authorization=f"Bearer {VIEW}").status == 200
        assert board.ask("/api/steer", method="POST", Authorization=f"Bearer {VIEW}").status == 403
        assert board.ask("/", Authorization="Bearer None").status == 401


def test_where_nothing_can_be_steered_nobody_gets_a_panel(runs: Path):
    with serving(runs) as board:
        assert board.get("run", run="good").json["may_steer"] is True
        board.shelf.read_only = "these runs are read from a store"
        assert board.get("run", run="good").json["may_steer"] is False


@pytest.mark.parametrize("token", [None, 5, ["a"], {"a": 1}, "x" * 5000])
def test_what_is_no_token_cannot_sign_in(board: Board, token: object):
    answer = sign_in(board, token)
    assert (answer.status, answer.body) == (400, b'expected {"token": "WORD"} as application/json\n')
    assert sign_in(board, STEER, Content_Type="text/plain").status == 400
    assert sign_in(board, STEER, Origin="http://evil.example").status == 403
    assert sign_in(board, "\ud800" + STEER).status == 401


def test_only_a_browser_gets_the_page_that_asks(board: Board):
    page = board.ask("/", Accept="text/html,*/*")
    assert (page.status, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    for file in ("sign-in.js", "session.js", "board.css", "lapwing.svg"):
        assert board.ask(f"/static/{file}").status == 200
    assert b"static/sign-in.js" in page.body
    assert b"good" not in page.body


def test_wrong_tokens_are_soon_not_looked_at(board: Board):
    """Not even the right one is; a page that is open stays open."""
    cookie = cookie_of(sign_in(board, VIEW))
    for guess in range(PER_ADDRESS):
        answer = (
            sign_in(board, f"guess-{guess}") if guess % 2 else board.ask("/", Authorization=f"Bearer {guess}")
        )
        assert answer.status == 401
    for answer in (sign_in(board, STEER), board.ask("/", Authorization=f"Bearer {STEER}")):
        assert answer.status == 429
        assert 0 < int(answer.headers["retry-after"]) <= WINDOW_S
        assert answer.body.startswith(b"too many wrong tokens; try again in ")
    assert board.ask("/api/run?run=good", Cookie=cookie).status == 200
    # It is the connection's own address that counts, whatever a client claims.
    assert sign_in(board, STEER, X_Forwarded_For="10.0.0.1").status == 429


def test_behind_a_proxy_the_address_that_it_names_counts(runs: Path):
    with serving(runs, Tokens(STEER), proxy="127.0.0.1") as board:
        for guess in range(PER_ADDRESS):
            sign_in(board, f"guess-{guess}", X_Forwarded_For="10.0.0.1")
        assert sign_in(board, STEER, X_Forwarded_For="10.0.0.1").status == 429
        answer = sign_in(board, STEER, X_Forwarded_For="10.0.0.2", X_Forwarded_Proto="https")
        assert answer.status == 200
        assert "Secure" in answer.headers["set-cookie"]


def test_guesses_from_everywhere_are_bounded_but_lock_nobody_out_who_was_right():
    now = 0.0
    guesses = Guesses(lambda: now)
    guesses.right("10.9.9.9")
    for guess in range(IN_ALL):
        assert guesses.wait_s(f"10.0.{guess}.1") == 0
        guesses.wrong(f"10.0.{guess}.1")
        now += 0.1
    assert guesses.wait_s("10.1.1.1") == pytest.approx(WINDOW_S - now)
    assert guesses.wait_s("10.9.9.9") == 0
    for _ in range(PER_ADDRESS):
        guesses.wrong("10.9.9.9")
    assert guesses.wait_s("10.9.9.9") == pytest.approx(WINDOW_S)
    now += WINDOW_S + 1
    assert guesses.wait_s("10.1.1.1") == guesses.wait_s("10.9.9.9") == 0


def test_all_addresses_of_one_network_of_ipv6_are_one():
    guesses = Guesses()
    for guess in range(PER_ADDRESS):
        guesses.wrong(f"2001:db8:0:1::{guess:x}")
    assert guesses.wait_s("2001:db8:0:1:ffff::1") > 0
    assert guesses.wait_s("2001:db8:0:2::1") == 0
    for _ in range(PER_ADDRESS):
        guesses.wrong("::ffff:10.0.0.1")
    assert guesses.wait_s("10.0.0.1") > 0
    assert guesses.wait_s("") == 0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def make_certificate(folder: Path) -> Path:
    """A certificate of this machine, with its key."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem"), "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl, which makes a certificate, is not installed")
    return folder


def test_with_a_certificate_the_connection_is_encrypted(runs: Path, certificate: Path):
    import http.client
    import ssl

    from lapwing.board._serve import _context

    context = _context(certificate / "certificate.pem", certificate / "key.pem")
    trusting = ssl.create_default_context(cafile=str(certificate / "certificate.pem"))
    with serving(runs, Tokens(STEER), context=context) as board:
        for _ in range(3):
            page = http.client.HTTPSConnection("127.0.0.1", board.port, context=trusting, timeout=60)
            body = json.dumps({"token": STEER})
            page.request("POST", "/api/sign-in", body, {"Content-Type": "application/json"})
            answer = page.getresponse()
            assert (answer.status, answer.read()) == (200, b'{"may_steer":true}')
            assert "Secure" in answer.headers["set-cookie"]
            # The same connection again, and a large file.
            cookie = answer.headers["set-cookie"].partition(";")[0]
            page.request("GET", "/static/plotly.min.js", headers={"Cookie": cookie})
            assert len(page.getresponse().read()) > 1_000_000
            page.close()
        with pytest.raises((http.client.HTTPException, OSError)):
            board.ask("/")
