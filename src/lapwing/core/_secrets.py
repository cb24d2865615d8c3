"""Secrets in command lines, variables and addresses, replaced before anything is recorded.

A run folder is copied, shared and shown on a board, so no password, token or key may be part of it. What is a secret is
told by names (`--api-key VALUE`, `HF_TOKEN=VALUE`, `"password": "VALUE"`), by place (`https://USER:PASSWORD@host`,
`Authorization: Bearer VALUE`) and by the shape of well-known keys (`ghp_…`, `sk-…`). Where it is unclear, the value is
replaced: a missing word of a command line is a nuisance, a published password is worse.
"""

import re
from collections.abc import Sequence

REDACTED = "REDACTED"

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CERTAIN = re.compile(
    r"passw(or)?d|passphrase|secret|credential"
    r"|(^|_)(api|access|account|private|signing|encryption|ssh|deploy|license)_?keys?(_|$)"
    r"|(^|_)(api|access|auth|bearer|refresh|session)_?tokens?(_|$)"
)
_LIKELY = {
    *(
        "token",
        "key",
        "auth",
        "authorization",
        "authentication",
        "oauth",
        "bearer",
        "cookie",
        "signature",
        "sig",
    ),
    *("pwd", "pass", "jwt", "pat"),
}
# `--token-file` names a file, and `--key-size` a number.
_PLACES = {"file", "path", "dir", "folder"}
_HARMLESS = _PLACES | {
    *("size", "count", "dim", "dims", "length", "len", "width", "weight", "weights", "heads", "seed", "rate"),
    *("type", "mode", "error", "bits", "index", "shape"),
}
_NUMBER = re.compile(r"[+-]?[\d_.]+(e[+-]?\d+)?", re.IGNORECASE)

_NAME = r"[A-Za-z_][\w.\-]*"
_SCHEMES = r"(?:bearer|basic|digest)\s+"
_VALUE = rf"\"(?:[^\"\\]|\\.)*(?:\"|\\?$)|'(?:[^'\\]|\\.)*(?:'|\\?$)|(?:{_SCHEMES})?[^\s\"'&;]+"
_WHOLE_PAIR = re.compile(rf"([-+~]*{_NAME})=(.*)", re.DOTALL)
_PAIR = re.compile(rf"({_NAME})([\"']?\s*[=:]\s*)(?!//)({_VALUE})", re.DOTALL | re.IGNORECASE)
_OPTION = re.compile(rf"(?<![\w-])(--?{_NAME})(\s+)((?!--){_VALUE})", re.DOTALL | re.IGNORECASE)
_AUTHORIZATION = re.compile(rf"\b({_SCHEMES})(?=\S{{6}})[^\s\"',;]+", re.IGNORECASE)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://)([^\s\"'<>]+)")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL
)
_KNOWN = re.compile(
    r"\b(hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}"
    r"|(AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{30,}|ya29\.[\w-]{10,}|eyJ[\w-]{6,}\.[\w-]+\.[\w-]*)"
)


def hide_secrets(words: Sequence[str]) -> list[str]:
    """A command line without the secrets in it.

    >>> hide_secrets(["train", "--api-key", "abc", "--steps", "5", "TOKEN=abc", "s3://me:abc@host/bucket"])
    ['train', '--api-key', 'REDACTED', '--steps', '5', 'TOKEN=REDACTED', 's3://REDACTED@host/bucket']
    """
    shown: list[str] = []
    option = ""  # The option whose values the next words are, if they are secret.
    for word in words:
        is_option = word.startswith("--") or re.fullmatch(r"-[A-Za-z]", word) is not None
        if option and not is_option:
            shown.append(REDACTED if is_secret_name(option, word) else hide_in_text(word))
            option = option if option.endswith(("s", "S")) else ""  # With a plural, there may be more.
        elif (pair := _WHOLE_PAIR.fullmatch(word)) and is_secret_name(pair[1], pair[2]):
            shown.append(f"{pair[1]}={REDACTED}")
            option = ""
        else:
            shown.append(hide_in_text(word))
            is_bare = word.startswith("-") and "=" not in word
            option = word if is_bare and is_secret_name(word) else ""
    return shown


def hide_in_text(text: str) -> str:
    """A text, such as an address or the value of a variable, without the secrets in it.

    >>> hide_in_text("https://me:abc@host/path?part=2&X-Amz-Signature=abc")
    'https://REDACTED@host/path?part=2&X-Amz-Signature=REDACTED'
    >>> hide_in_text('{"api_key": "abc", "steps": 5}'), hide_in_text("Authorization: Bearer abcdefgh")
    ('{"api_key": "REDACTED", "steps": 5}', 'Authorization: REDACTED')
    """
    text = _PRIVATE_KEY.sub(REDACTED, text)
    text = _URL.sub(lambda url: url[1] + _without_user(url[2]), text)
    text = _PAIR.sub(_hidden, text)
    text = _OPTION.sub(_hidden, text)
    text = _AUTHORIZATION.sub(rf"\1{REDACTED}", text)
    return _KNOWN.sub(REDACTED, text)


def is_secret_name(name: str, value: str = "") -> bool:
    """Whether a variable or an option of this name probably has a secret as its value.

    >>> [is_secret_name(name) for name in ("HF_TOKEN", "--api-key", "dbPassword", "--steps", "--author", "monkey")]
    [True, True, True, False, False, False]
    >>> is_secret_name("--max-tokens", "512"), is_secret_name("--token-file")
    (False, False)
    """
    words = _words(name)
    if is_certainly_secret(name):
        return True
    if not words or words[-1] in _HARMLESS:
        return False
    if _LIKELY & set(words) or any(word.endswith("token") for word in words):
        return True
    return bool({"tokens", "keys", "cookies"} & set(words)) and not _NUMBER.fullmatch(value)


def is_certainly_secret(name: str) -> bool:
    """Whether a name can only mean a secret: `api_key`, but not `key`, which may be that of a column.

    >>> [is_certainly_secret(name) for name in ("api_key", "smtp.password", "key", "mask_token", "password_file")]
    [True, True, False, False, False]
    """
    words = _words(name)
    return bool(words) and words[-1] not in _PLACES and _CERTAIN.search("_".join(words)) is not None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _hidden(pair: re.Match[str]) -> str:
    name, between, value = pair.groups()
    if not is_secret_name(name, value):
        # What comes after may be a pair itself: in `a: token=abc`, `token=abc` is the value of `a`.
        return name + between + _PAIR.sub(_hidden, value)
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{between}{quote}{REDACTED}{quote}"


def _without_user(rest: str) -> str:
    """What comes after `scheme://`, without `user:password@`."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    _, colon, port = authority.rpartition(":")
    is_cut = bool(colon) and not port.isdigit() and not authority.endswith("]")  # A slash in the password.
    user, at, _ = (rest if is_cut and "@" not in authority else authority).rpartition("@")
    return f"{REDACTED}@{rest[len(user) + 1 :]}" if at else rest
