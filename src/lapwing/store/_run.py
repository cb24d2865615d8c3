"""A run in a store: its newest manifest, and the next one."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lapwing.core import closest

from ._manifest import (
    FOLDER,
    SWEEP,
    Manifest,
    decode,
    is_safe_name,
    manifest_name,
    revision_of,
)
from ._remote import DamagedError, MissingError, Store, StoreError

Progress = Callable[[int, int], object]
"""Called with the bytes that were transferred since the last call, and those that are to be transferred in addition."""
_TRIES = 5


def no_progress(done: int, more: int) -> None:
    """Shows nothing."""


class ConflictError(StoreError):
    """Somebody else has uploaded the run."""


@dataclass(frozen=True)
class RemoteRun:
    """A run of a store, or what belongs to a sweep, by its name there, with its manifests, the newest first: after a
    commit there is one."""

    store: Store
    name: str
    manifests: tuple[str, ...] = ()

    @classmethod
    def find(cls, store: Store, name: str) -> "RemoteRun":
        """The run as it is in the store now."""
        return cls(store, name, _manifests(name, store.sizes(f"{name}/{FOLDER}")))

    def __str__(self) -> str:
        return f"{self.store}/{self.name}"

    def manifest(self) -> Manifest:
        """The newest manifest; one without files if nothing was uploaded yet.

        In a file system, a killed writer may leave half of a manifest. Then the one before it is still there.
        """
        damaged = None
        for name in self.manifests:
            try:
                return decode(b"".join(self.store.read(name)), name, self.store.url)
            except DamagedError as error:
                damaged = damaged or error
        if damaged:
            raise damaged
        return Manifest(0.0)

    def commit(self, manifest: Manifest) -> "RemoteRun":
        """Makes a manifest the newest one, and removes what it does not name: what came before, and what an upload that
        was killed has left."""
        there = self.store.sizes(self.name)
        if _manifests(self.name, there) != self.manifests:
            raise ConflictError(
                f"another process has uploaded {self} meanwhile; stop it, or `lapwing pull` the run and continue that"
            )
        content = manifest.encode()
        revision = max((revision_of(name) or 0 for name in self.manifests), default=0) + 1
        name = f"{self.name}/{manifest_name(revision, content)}"
        self.store.write(name, [content])
        kept = {f"{self.name}/{each}" for each in manifest.objects()}
        others = tuple(f"{run}/" for each in there if (run := _run_of(each)) not in (None, self.name))
        self.store.delete(each for each in there if each not in kept and not each.startswith(others))
        return RemoteRun(self.store, self.name, (name,))


def remote_runs(store: Store) -> dict[str, RemoteRun]:
    """All that is in a store, by name: runs, and the own files of sweeps (`NAME/.sweep`)."""
    by_run: dict[str, list[str]] = {}
    for name in store.sizes():
        if (run := _run_of(name)) is not None and is_safe_name(run):
            by_run.setdefault(run, []).append(name)
    return {run: RemoteRun(store, run, _manifests(run, names)) for run, names in sorted(by_run.items())}


def choose(store: Store, wanted: str | None) -> list[RemoteRun]:
    """The runs of a store that a person means: one by its name or a part that no other name has, a sweep, or all."""
    found = remote_runs(store)
    if wanted is None:
        if not found:
            raise StoreError(f"there are no runs in {store}; `lapwing push RUN {store}` uploads one")
        return list(found.values())
    wanted = wanted.rstrip("/")
    if sweep := [run for name, run in found.items() if name.startswith(f"{wanted}/")]:
        return sweep
    names = [name for name in found if not name.endswith(f"/{SWEEP}")]
    matches = [wanted] if wanted in names else [name for name in names if wanted and wanted in name]
    if len(matches) == 1:
        return [found[matches[0]]]
    if matches:
        raise StoreError(f"{wanted!r} could be {', '.join(matches[:10])}; write more of the name")
    guess = closest(wanted, names)
    advice = f"did you mean {guess}?" if guess else f"`lapwing runs --runs {store}` lists them"
    raise StoreError(f"there is no run {wanted!r} in {store}; {advice}")


def with_newest(run: RemoteRun, action: Callable[[RemoteRun, Manifest], None]) -> None:
    """Calls `action` with the newest manifest, and again if that was replaced, with its objects, in the meantime."""
    for attempt in range(_TRIES):
        try:
            action(run, run.manifest())
            return
        except MissingError:
            now = RemoteRun.find(run.store, run.name)
            if now.manifests == run.manifests or attempt == _TRIES - 1:
                raise
            run = now
            time.sleep(0.1 * attempt)


def _run_of(name: str) -> str | None:
    """The run of a manifest, by the name of the object; None for other objects."""
    return name.rpartition(f"/{FOLDER}/")[0] if revision_of(name) is not None else None


def _manifests(run: str, names: Iterable[str]) -> tuple[str, ...]:
    ours = [name for name in names if _run_of(name) == run]
    return tuple(sorted(ours, key=lambda name: (revision_of(name), name), reverse=True))
