"""A place for objects at a URL, by fsspec: S3 and what speaks its language, or any other file system that fsspec knows.

An object is written once and never changed, so no writer can damage what another one reads. Credentials and the address
of a server come from where fsspec's packages look for them (for S3 the variables AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL, or the files of the `aws` command), never from a run.

Everything that goes wrong in another library becomes one sentence here.
"""

import contextlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from lapwing.core import LapwingError, hide_in_text

BLOCK = 16 << 20  # Above the 5 MiB that S3 asks of each part of a large object.
_CONNECT_S, _ANSWER_S = 10, 60
_RIGHTS = "check the credentials, and what they may do there"
_NETWORK = "check the network and the address of the server (AWS_ENDPOINT_URL)"
_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to ~/.aws/credentials"


class StoreError(LapwingError):
    """What went wrong between a run folder and its store, in one sentence."""


class MissingError(StoreError):
    """There is no such bucket or object."""


class DamagedError(StoreError):
    """An object is not what was uploaded."""


def is_url(place: str) -> bool:
    """Whether a text is a URL and not a path.

    >>> is_url("s3://bucket/runs"), is_url("runs/a://b"), is_url("runs")
    (True, False, False)
    """
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://", place) is not None


class Store:
    """The objects under a URL, by name. Its names are relative to the URL, with slashes.

    >>> store = Store("memory://example-of-store")
    >>> store.write("a/b", [b"all ", b"of it"])
    >>> store.sizes(), b"".join(store.read("a/b"))
    ({'a/b': 9}, b'all of it')
    """

    def __init__(self, url: str):
        self.url = hide_in_text(re.sub("(?<=[^:/])/+$", "", url))
        """As it may be shown and recorded."""
        with self._asking():
            self._files, root = _connect(url)
            self._root = root.rstrip("/")

    def __str__(self) -> str:
        return self.url

    def check(self) -> None:
        """**Raises** `StoreError` if nothing can be written here, so that a training is not begun in vain."""
        probe = ".lapwing"
        self.write(probe, [b"Runs of Lapwing; `lapwing pull` brings them back.\n"])
        self.sizes(probe)

    def sizes(self, under: str = "") -> dict[str, int]:
        """The size of every object, or of those in the folder `under`, by name."""
        top = f"{self._root}/{under}".rstrip("/")
        with self._asking():
            self._files.invalidate_cache()
            found = self._files.find(top, detail=True)
        skip = len(self._root) + 1
        return {
            name[skip:]: int(about["size"] or 0)
            for name, about in found.items()
            if name.startswith(f"{top}/")
        }

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        """Writes an object. If the process is killed there may be half an object, which nothing refers to.

        An object store has it when it is complete. A folder shows a file while it is written, so there it is written
        under another name, and removed if that fails: a disk that is full would else get fuller by each try.
        """
        path = f"{self._root}/{name}"
        if "file" not in self._files.protocol:
            with self._asking():
                self._fill(path, blocks)
            return
        draft = f"{path}.{uuid.uuid4().hex}.part"
        with self._asking():
            try:
                self._fill(draft, blocks)
                os.replace(draft, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft)
                raise

    def _fill(self, path: str, blocks: Iterable[bytes]) -> None:
        with self._open_new(path) as file:
            for block in blocks:
                file.write(block)

    def _open_new(self, path: str) -> Any:
        """Only a file system has folders, and says that one is missing. Asking an object store for one would make a
        bucket, which is for a person to decide."""
        try:
            return self._files.open(path, "wb", block_size=BLOCK)
        except FileNotFoundError:
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            return self._files.open(path, "wb", block_size=BLOCK)

    def read(self, name: str) -> Iterator[bytes]:
        """The content of an object, in blocks."""
        with self._asking(name), self._files.open(f"{self._root}/{name}", "rb", block_size=BLOCK) as file:
            while block := file.read(BLOCK):
                yield block

    def delete(self, names: Iterable[str]) -> None:
        """Deletes objects; one that is gone already is no error."""
        for name in names:
            with self._asking(), contextlib.suppress(FileNotFoundError):
                self._files.rm_file(f"{self._root}/{name}")

    @contextlib.contextmanager
    def _asking(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except LapwingError:
            raise
        except Exception as error:  # Each library has errors of its own.
            where = f"{self.url}/{name}" if name else self.url
            raise _error(where, error) from error


def _connect(url: str) -> tuple[Any, str]:
    import fsspec

    options: dict[str, Any] = {}
    if url.partition("://")[0] in ("s3", "s3a"):
        options["config_kwargs"] = {
            "connect_timeout": _CONNECT_S,
            "read_timeout": _ANSWER_S,
            "retries": {"max_attempts": 1},  # s3fs tries five times itself.
        }
    return fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=False, **options)


def _error(where: str, error: Exception) -> StoreError:
    """One sentence: what is wrong, and what to do."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    reason = hide_in_text(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, ImportError):
        needs = "pip install 'lapwing[cloud]' brings those for S3"
        return StoreError(f"{where} needs a package that is not installed ({reason}); {needs}")
    if any(re.search("Credential|ProfileNotFound|TokenRetrieval|SSO", kind) for kind in kinds):
        return StoreError(f"there are no credentials for {where} ({reason}); {_CREDENTIALS}")
    if isinstance(error, FileNotFoundError):
        return MissingError(f"there is no {where} ({reason}); create the bucket, or correct the address")
    if isinstance(error, PermissionError):
        return StoreError(f"{where} refuses ({reason}); {_RIGHTS}")
    network = ("ConnectionError", "HTTPClientError", "TimeoutError", "ClientConnectorError", "gaierror")
    if kinds & set(network):
        return StoreError(f"cannot reach {where} ({reason}); {_NETWORK}")
    if isinstance(error, ValueError):
        return StoreError(
            f"{where} is not an address of a store ({reason}); write one such as s3://bucket/runs"
        )
    return StoreError(f"{where} answers with an error ({type(error).__name__}: {reason}); {_RIGHTS}")
