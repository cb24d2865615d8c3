"""What must never be recorded, in all the ways in which a person writes it on a command line."""

import json
import shlex
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lapwing.core import REDACTED, hide_in_text, hide_secrets

NAMES = [
    *(
        "token",
        "api-key",
        "api_key",
        "apikey",
        "password",
        "passwd",
        "secret",
        "credential",
        "auth",
        "hf-token",
    ),
    *(
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "GITHUB_TOKEN",
        "PGPASSWORD",
        "dbPassword",
    ),
    *(
        "config.api-key",
        "client-secret",
        "authToken",
        "private_key",
        "Authorization",
        "bearer",
        "credentials",
    ),
    *(
        "store.credentials.key",
        "passphrase",
        "session-cookie",
        "AZURE_CLIENT_SECRET",
        "api-keys",
        "api-tokens",
    ),
]
HARMLESS = [
    *(
        "steps",
        "learning-rate",
        "author",
        "tokenizer",
        "keyboard",
        "monkey",
        "name",
        "model.width",
        "max-steps",
    ),
    *(
        "token-file",
        "key-size",
        "password-file",
        "bypass",
        "authors",
        "optimizer.b1",
        "compass",
        "hotkeys-file",
    ),
]
# Nothing in it is part of the names around it, and it does not look like an option.
ALPHABET = string.ascii_letters + string.digits + "+/_.~!%^*()-"
SECRET = st.text(ALPHABET, min_size=8, max_size=40).map(lambda text: f"Zq{text}9x")
ANY_TEXT = st.text(min_size=1, max_size=30).map(lambda text: f"Zq{text}9x")
IN_ADDRESS = st.text(ALPHABET.replace("/", ""), min_size=8, max_size=40).map(lambda text: f"Zq{text}9x")
WORDS = st.lists(
    st.sampled_from(["lapwing", "train", "adding", "--steps", "5", "--name=a", "-v", "x=1"]), max_size=4
)


# Other work may go on meanwhile.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def is_absent(secret: str, words: list[str]) -> bool:
    return secret not in " ".join(words) and secret not in json.dumps(words)


@unhurried
@given(WORDS, st.sampled_from(NAMES), ANY_TEXT, WORDS, st.integers(0, 3))
def test_a_secret_is_gone_however_it_is_given(before, name, secret, after, way):
    words = [[f"--{name}={secret}"], [f"--{name}", secret], [f"{name}={secret}"], [f"+{name}={secret}"]][way]
    hidden = hide_secrets([*before, *words, *after])
    assert is_absent(secret, hidden)
    assert len(hidden) == len(before) + len(words) + len(after)
    assert hidden[: len(before)] == before
    if way != 1 or name[-1].lower() != "s":  # An option with a plural may have several values.
        assert hidden[len(before) + len(words) :] == after


@unhurried
@given(
    IN_ADDRESS,
    st.sampled_from(["https", "s3", "postgresql+psycopg2", "redis"]),
    IN_ADDRESS,
    st.integers(0, 5),
)
def test_addresses_lose_their_password_and_signature(user, scheme, secret, way):
    address = [
        f"{scheme}://{user}:{secret}@example.org:8080/data?x=1",
        f"{scheme}://{secret}@example.org/data",
        f"{scheme}://:{secret}@example.org/data#part",
        f"{scheme}://example.org/data?x=1&X-Amz-Signature={secret}",
        f"{scheme}://example.org/data?sig={secret}&x=1",
        f"{scheme}://example.org/data?access_token={secret}",
    ][way]
    for words in (
        [address],
        [f"--store={address}"],
        ["--store", address],
        [f"STORE={address}"],
        [f"see <{address}>"],
    ):
        hidden = hide_secrets(words)
        assert is_absent(secret, hidden), hidden
        assert "example.org" in " ".join(hidden)
        assert f"{scheme}://" in " ".join(hidden)


@unhurried
@given(st.sampled_from(NAMES), SECRET, st.integers(0, 5))
def test_secrets_inside_one_word(name, secret, way):
    text = [
        json.dumps({"steps": 5, name: secret, "width": 8}),
        str({"steps": 5, name: secret}),
        f"{name}: {secret}",
        f"run --{name} {secret} --steps 5",
        f"x=1 {name}={secret} y=2",
        f"{name} = '{secret} and more'",
    ][way]
    assert secret not in hide_in_text(text)
    assert is_absent(secret, hide_secrets(["sh", "-c", text]))


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer SECRET1234",
        "authorization: basic SECRET1234",
        "curl -H 'X-Api-Key: SECRET1234'",
        "hf_SECRET1234abcdefghij",
        "ghp_SECRET1234abcdefghijklmn",
        "sk-SECRET1234-abcdefghijk",
        "AKIASECRET1234ABCD",
        "eyJhbGciOi.SECRET1234.abc",
        "-----BEGIN RSA PRIVATE KEY-----\nSECRET1234\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nSECRET1234",
        "postgres://me:SECRET1234/with/slashes@host/db",
        "postgres://me:SECRET1234@with@ats@host/db",
        'password="SECRET1234 is long',
        "a: token=SECRET1234",
    ],
)
def test_secrets_by_place_and_shape(text):
    assert "SECRET1234" not in hide_in_text(text)
    assert "SECRET1234" not in " ".join(hide_secrets(["x", text]))


@unhurried
@given(st.sampled_from(HARMLESS), st.from_regex(r"[a-z0-9.]{1,12}", fullmatch=True), st.booleans())
def test_what_is_no_secret_stays(name, value, joined):
    words = [f"--{name}={value}"] if joined else [f"--{name}", value]
    assert hide_secrets(["lapwing", "train", *words, "adding"]) == ["lapwing", "train", *words, "adding"]


@pytest.mark.parametrize(
    "command",
    [
        "lapwing train adding --max-tokens 512 --model.width 8 --rollback.times 1 --data=/data/[1]/x@y",
        "lapwing sweep latent-thinker --grid learning_rate=0.1,0.2 --seeds 3",
        "python train.py s3://bucket/prefix/x@1.2 https://example.org:8080/a?b=c git@example.org:me/code.git",
        "lapwing board --token-file ~/.token --host 0.0.0.0 http://[::1]:8765/",
        "--xla_gpu_deterministic_ops=true --xla_cpu_enable_fast_math=false",
    ],
)
def test_ordinary_command_lines_stay(command):
    words = shlex.split(command)
    assert hide_secrets(words) == words
    assert hide_in_text(command) == command


@unhurried
@given(st.lists(st.text(max_size=40), max_size=5))
def test_any_words_stay_as_many_and_the_second_time_changes_nothing(words):
    once = hide_secrets(words)
    assert len(once) == len(words)
    assert hide_secrets(once) == once
    assert REDACTED not in " ".join(words) or REDACTED in " ".join(once)
