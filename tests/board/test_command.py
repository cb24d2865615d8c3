"""`lapwing board` as a person starts it."""

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lapwing.board import Address, BoardError, Tokens, serve
from lapwing.cli import main


def start(folder: Path, *words: str) -> tuple[subprocess.Popen, str]:
    command = [sys.executable, "-m", "lapwing", "board", "--port", "0", *words]
    board = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert board.stdout is not None
    return board, board.stdout.readline()


def status_of(port: int, path: str = "/", **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_it_prints_its_address_and_ends_quietly(tmp_path: Path):
    board, said = start(tmp_path)
    try:
        found = re.fullmatch(r"The board is at http://127\.0\.0\.1:(\d+)/ until Ctrl-C\.\n", said)
        assert found
        assert status_of(int(found[1])) == 200
        page = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        page.request("GET", "/api/live")
        stream = page.getresponse()
        assert stream.readline().startswith(b"data: ")
        if (maps := Path(f"/proc/{board.pid}/maps")).exists():
            assert "jaxlib" not in maps.read_text()
        board.send_signal(signal.SIGINT)
        out, err = board.communicate(timeout=60)
        assert (board.returncode, out, err) == (0, "The board has stopped; the runs continue.\n", "")
        assert stream.read().strip() == b""
        stream.close()
        page.close()
    finally:
        board.kill()
        board.communicate()


def test_a_file_is_not_a_folder_of_runs(tmp_path: Path, capsys):
    (tmp_path / "runs").write_text("")
    assert main(["board", "--runs", str(tmp_path / "runs"), "--port", "0"]) == 2
    said = f"lapwing: --runs should be the folder of the runs, but '{tmp_path}/runs' is a file\n"
    assert capsys.readouterr().err == said


def test_an_address_that_others_reach_gets_tokens(tmp_path: Path):
    board, said = start(tmp_path, "--host", "0.0.0.0")
    try:
        found = re.fullmatch(r"The board is at http://[^:/]+:(\d+)/#token=([\w-]{32}) until Ctrl-C\.\n", said)
        assert found
        watching = re.fullmatch(
            r"To watch without steering: http://.*/#token=([\w-]{32})\n", board.stdout.readline()
        )
        assert watching
        assert status_of(int(found[1])) == 401
        for token in (found[2], watching[1]):
            assert status_of(int(found[1]), Authorization=f"Bearer {token}") == 200
    finally:
        board.kill()
        board.communicate()


def test_tokens_of_a_file_and_of_the_environment(tmp_path: Path, monkeypatch):
    """They are not printed, and nobody sees them in the list of processes."""
    (tmp_path / "token").write_text(f"{'s' * 20}\n")
    (tmp_path / "token").chmod(0o640)
    monkeypatch.setenv("LAPWING_BOARD_TOKEN", "the-file-wins-over-it")
    monkeypatch.setenv("LAPWING_BOARD_VIEW_TOKEN", "v" * 20)
    board, said = start(tmp_path, "--token-file", "token")
    try:
        found = re.fullmatch(r"The board is at http://127\.0\.0\.1:(\d+)/ until Ctrl-C\.\n", said)
        assert found
        port = int(found[1])
        assert status_of(port) == 401
        for token, status in (("s" * 20, 200), ("v" * 20, 200), ("the-file-wins-over-it", 401)):
            assert status_of(port, Authorization=f"Bearer {token}") == status
        if (words := Path(f"/proc/{board.pid}/cmdline")).exists():
            assert b"ssss" not in words.read_bytes()
        board.send_signal(signal.SIGINT)
        assert board.communicate(timeout=60)[1] == (
            "Others on this machine can read token; to change that: chmod 600 token\n"
        )
    finally:
        board.kill()
        board.communicate()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--token", "word"],
            "everybody on this machine can read --token in the list of processes; write the token to a file and give "
            "--token-file FILE, or set LAPWING_BOARD_TOKEN",
        ),
        (
            ["--token-file", "none"],
            "cannot read a token from 'none': No such file or directory; write one with: "
            "(umask 077; openssl rand -hex 24 > FILE)",
        ),
        (["--key", "key.pem"], "a key needs its certificate; give --certificate FILE too"),
        (
            ["--certificate", "none"],
            "cannot use the certificate 'none' and its key: No such file or directory; both are PEM files, without a "
            "passphrase",
        ),
    ],
)
def test_tokens_and_certificates_that_cannot_be_used(tmp_path: Path, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(["board", "--port", "0", *words]) == 2
    assert capsys.readouterr().err == f"lapwing: {sentence}\n"


def test_an_empty_file_is_no_certificate(tmp_path: Path):
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(BoardError, match=r"cannot use the certificate '.*empty.pem' and its key: "):
        serve(port=0, certificate=tmp_path / "empty.pem")


def test_it_needs_no_jax_and_starts_at_once(tmp_path: Path):
    """From nothing to a socket that listens, in the time that a process may use."""
    code = (
        "import sys, time\n"
        "from lapwing.board import serve\n"
        "def say(address):\n"
        "    raise SystemExit(f'{time.process_time():.2f} {[m for m in sys.modules if m.startswith(\"jax\")]}')\n"
        "serve('runs', port=0, say=say)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    seconds, _, modules = done.stderr.strip().partition(" ")
    assert modules == "[]"
    assert float(seconds) < 2.0, f"it used {seconds} s"


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path, capsys):
    board, said = start(tmp_path)
    try:
        port = re.search(r":(\d+)/", said)
        assert port
        assert main(["board", "--port", port[1]]) == 2
        assert capsys.readouterr().err == (
            f"lapwing: cannot listen at 127.0.0.1, port {port[1]}: Address already in use; name another with --host "
            "and --port\n"
        )
    finally:
        board.kill()
        board.communicate()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"port": 70000}, "a port is a number from 0 to 65535, not 70000"),
        ({"host": "no such host", "port": 0}, "cannot listen at no such host, port 0: "),
        (
            {"port": 0, "tokens": Tokens("a token with blanks and ümlauts")},
            "a token has at least 16 letters, digits or - _ . ~; write a longer one, such as the output of: openssl",
        ),
        ({"port": 0, "tokens": Tokens(view="short")}, "a token has at least 16 letters"),
        ({"port": 0, "tokens": Tokens("s" * 20, "s" * 20)}, "the token to watch must be another one than"),
        ({"host": "a" * 100, "port": 0}, f"cannot listen at {'a' * 100}, port 0: "),
    ],
)
def test_what_cannot_be_served_is_one_sentence(options: dict, sentence: str):
    with pytest.raises(BoardError) as found:
        serve(**options)
    assert str(found.value).startswith(sentence)


def test_an_address_is_one_that_a_browser_takes():
    assert str(Address("::1", 8765)) == "http://[::1]:8765/"
    assert str(Address("10.0.0.1", 80, Tokens("word"))) == "http://10.0.0.1:80/"
    assert Address("10.0.0.1", 80, is_encrypted=True).link("word") == "https://10.0.0.1:80/#token=word"


def test_without_the_extra_it_says_what_brings_it(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'uvicorn' else found(name, *more)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "lapwing", "board"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "lapwing: the board needs uvicorn; install it with: pip install 'lapwing[board]'\n",
    )


@pytest.mark.slow
def test_a_board_that_waits_uses_next_to_nothing(tmp_path: Path):
    board, _ = start(tmp_path)
    try:
        time.sleep(2)
        before = Path(f"/proc/{board.pid}/stat").read_text().split()[13:15]
        time.sleep(5)
        after = Path(f"/proc/{board.pid}/stat").read_text().split()[13:15]
        used = (sum(map(int, after)) - sum(map(int, before))) / os.sysconf("SC_CLK_TCK")
        assert used < 0.25, f"{used} s of 5 s"
    finally:
        board.kill()
        board.communicate()
