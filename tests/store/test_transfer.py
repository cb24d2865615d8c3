"""push and pull: what arrives is what was sent, or the state before it."""

import errno
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from lapwing.journal import Run, RunWriter
from lapwing.store import ConflictError, Store, StoreError, list_runs, pull, push
from lapwing.store._manifest import manifest_name
from lapwing.store._run import RemoteRun
from lapwing.store._upload import Upload

from .conftest import save


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a run, without those that are of one machine."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    own = ("lock", ".best.json", ".manifest")
    return {name: path.read_bytes() for name, path in sorted(files.items()) if name not in own}


def test_a_run_comes_back_as_it_was(url: str, run: RunWriter, tmp_path: Path):
    run.put("pictures/a b[1]*#%ü.png", b"a picture")
    run.end("finished", "done")
    assert push(run.folder, url)["one"] > 1000
    assert push(run.folder, url) == {"one": 0}
    assert list_runs(url) == ["one"]
    (pulled,) = pull(url, "on", tmp_path / "here")
    assert contents(pulled.folder) == contents(run.folder)
    assert Run.open(pulled.folder).state == "finished"
    assert Run.open(pulled.folder).params("newest")["w"][0] == 2.0
    assert [each.size for each in pull(url, None, tmp_path / "here")] == [0]
    # A URL of the run itself is enough.
    assert contents(pull(f"{url}/one", None, tmp_path / "there")[0].folder) == contents(run.folder)


def test_what_is_new_is_sent_and_what_is_removed_is_removed(url: str, run: RunWriter, tmp_path: Path):
    upload = Upload(run.folder, Store(url), "one")
    first = next(run.checkpoints.iterdir())
    for step in range(3, 12):
        run.log({"step": step, "loss": 1 / step})
        first.unlink()
        first = save(run, step)
        upload.sync(is_last=False)
        (pulled,) = pull(url, "one", tmp_path / "here")
        assert (pulled.folder / "metrics.jsonl").read_bytes() == (run.folder / "metrics.jsonl").read_bytes()
        assert first.name in {path.name for path in (pulled.folder / "checkpoints").iterdir()}
    objects = Store(url).sizes("one")
    assert sum("checkpoints/" in name for name in objects) == 1
    assert sum("metrics.jsonl" in name for name in objects) < 5, "parts of a growing file are merged"
    assert sum(".manifest/" in name for name in objects) == 1


def test_a_file_is_uploaded_again_only_now_and_then(memory_url: str, tmp_path: Path):
    run = Run.create("demo", runs_dir=tmp_path, name="one")
    upload, sent = Upload(run.folder, Store(memory_url), "one"), 0
    for step in range(200):
        run.log(*({"step": 50 * step + k, "loss": 0.125} for k in range(50)))
        sent += upload.sync(is_last=False)
    size = (run.folder / "metrics.jsonl").stat().st_size
    assert sent < 6 * size  # Sending all of it each time would be 100 times its size.


class Killed(BaseException):
    pass


def write_until(limit: int, monkeypatch: pytest.MonkeyPatch, *, half: bool) -> None:
    """From the object `limit` on, nothing is written, or half of an object, as by a process that is killed."""
    count, whole = itertools.count(), Store.write

    def write(self: Store, name: str, blocks: Iterable[bytes]) -> None:
        if next(count) < limit:
            whole(self, name, blocks)
            return
        if half:
            content = b"".join(blocks)
            whole(self, name, [content[: len(content) // 2]])
        raise Killed

    monkeypatch.setattr(Store, "write", write)


@pytest.mark.parametrize("half", [False, True])
def test_an_upload_that_is_killed_leaves_the_state_before_it(
    memory_url: str, run: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: bool
):
    before = shutil.copytree(run.folder, tmp_path / "before" / "one")
    run.log({"step": 3, "loss": 0.1})
    run.note("more")
    save(run, 3)
    for limit in range(5):  # Four files and the manifest.
        url = f"{memory_url}/{limit}"
        push(before, url)
        with monkeypatch.context() as patched:
            write_until(limit, patched, half=half)
            with pytest.raises(Killed):
                push(run.folder, url)
        assert contents(pull(url, "one", tmp_path / f"{limit}")[0].folder) == contents(before), limit
        push(run.folder, url)
        assert contents(pull(url, "one", tmp_path / f"{limit}")[0].folder) == contents(run.folder)
        kept = {f"one/{name}" for name in RemoteRun.find(Store(url), "one").manifest().objects()}
        assert {name for name in Store(url).sizes("one") if "/.manifest/" not in name} == kept


def test_a_new_run_that_was_killed_while_it_was_uploaded_is_not_there(
    url: str, run: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        write_until(3, patched, half=True)
        with pytest.raises(Killed):
            push(run.folder, url)
    assert list_runs(url) == []
    with pytest.raises(StoreError, match=f"there are no runs in {url}; `lapwing push RUN"):
        pull(url, None, tmp_path)
    assert push(run.folder, url)["one"]
    assert contents(pull(url, "one", tmp_path / "here")[0].folder) == contents(run.folder)


def test_a_pull_that_is_killed_leaves_nothing_that_looks_like_a_run_and_continues(
    memory_url: str, run: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    push(run.folder, memory_url)
    read, count = Store.read, itertools.count()

    def broken(self: Store, name: str):
        for block in read(self, name):
            yield block[:10] if next(count) == 5 else block
            if next(count) > 10:
                raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Store, "read", broken)
        with pytest.raises((Killed, StoreError)):
            pull(memory_url, "one", tmp_path / "here")
    assert not (tmp_path / "here" / "one").exists()
    assert not list((tmp_path / "here").rglob(f".*.{os.getpid()}"))
    (pulled,) = pull(memory_url, "one", tmp_path / "here")
    assert contents(pulled.folder) == contents(run.folder)
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["one"]


def objects(tmp_path: Path, part: str) -> list[Path]:
    return [path for path in (tmp_path / "store").rglob("*") if path.is_file() and part in str(path)]


def test_damage_in_the_store_is_found(run: RunWriter, tmp_path: Path):
    url = f"file://{tmp_path}/store"
    older = next(run.checkpoints.iterdir())
    save(run, 3)
    push(run.folder, url)
    (checkpoint,) = objects(tmp_path, "step-3")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"x")
    (pulled,) = pull(url, "one", tmp_path / "here")
    assert len(pulled.damaged) == 1
    assert "step-3.safetensors" in pulled.damaged[0]
    assert "is damaged: it is not what was uploaded; push the run again" in pulled.damaged[0]
    assert [path.name for path in (pulled.folder / "checkpoints").iterdir()] == [older.name]
    (metrics,) = objects(tmp_path, "metrics")
    metrics.write_bytes(metrics.read_bytes().replace(b"0.25", b"0.24"))
    with pytest.raises(StoreError, match=r"metrics\.jsonl\.0-\w+ is damaged"):
        pull(url, "one", tmp_path / "there")
    assert not (tmp_path / "there" / "one").exists()
    (manifest,) = objects(tmp_path, ".manifest")
    manifest.write_bytes(manifest.read_bytes()[:-5])
    with pytest.raises(StoreError, match="is damaged: its content is not what its name says"):
        pull(url, "one", tmp_path / "there")


@pytest.mark.parametrize(
    "files",
    [
        {"../../escaped": []},
        {"/tmp/escaped": []},
        {"a/../../b": []},
        {".hidden": []},
        {"lock": []},
        {"control/1.json": []},
        {"metrics.jsonl": [[-1, "0" * 64]]},
        {"metrics.jsonl": [[1, "../../../etc/passwd"]]},
        {"metrics.jsonl": 3},
        [],
    ],
)
def test_a_hostile_manifest_is_refused(memory_url: str, tmp_path: Path, files: object):
    content = json.dumps({"format": 1, "time": 0, "writer": None, "files": files}).encode()
    Store(memory_url).write(f"one/{manifest_name(1, content)}", [content])
    with pytest.raises(StoreError, match="is not a manifest of Lapwing"):
        pull(memory_url, "one", tmp_path / "here")
    assert not list(tmp_path.rglob("escaped"))


def test_names_that_lead_out_of_the_runs_folder_are_not_runs(memory_url: str, run: RunWriter, tmp_path: Path):
    push(run.folder, memory_url)
    content = b"".join(Store(memory_url).read(next(iter(Store(memory_url).sizes("one/.manifest")))))
    Store(memory_url).write(f".hidden/{manifest_name(1, content)}", [content])
    Store(memory_url).write(f"a/.b/{manifest_name(1, content)}", [content])
    assert list_runs(memory_url) == ["one"]


def test_two_who_write_one_run_do_not_mix(memory_url: str, run: RunWriter, tmp_path: Path):
    here = Upload(run.folder, Store(memory_url), "one")
    here.sync(is_last=False)
    (pulled,) = pull(memory_url, "one", tmp_path / "there")
    Run.open(pulled.folder).note("continued on another machine")
    push(pulled.folder, memory_url)
    run.note("and here too")
    with pytest.raises(ConflictError, match=r"another process has uploaded memory://.*/one meanwhile"):
        here.sync()
    with pytest.raises(ConflictError, match="/one is another run, or was continued elsewhere"):
        push(run.folder, memory_url)
    run.end("finished", "done")
    with pytest.raises(StoreError, match=r"is not an earlier state of .* or was continued here"):
        pull(memory_url, "one", run.folder.parent)
    assert push(run.folder, memory_url, replace=True)["one"]
    assert pull(memory_url, "one", run.folder.parent)[0].size == 0


def test_a_running_run_is_not_pulled_over(memory_url: str, run: RunWriter):
    push(run.folder, memory_url)
    with pytest.raises(
        StoreError, match=r"the run one is running in .*; stop it, or pull into another folder"
    ):
        pull(memory_url, "one", run.folder.parent)


def test_a_reader_who_is_overtaken_by_a_commit_reads_again(
    memory_url: str, run: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    push(run.folder, memory_url)
    read, is_first = Store.read, iter([True])

    def overtaken(self: Store, name: str):
        if "checkpoints" in name and next(is_first, False):
            next(run.checkpoints.iterdir()).unlink()
            save(run, 9)
            push(run.folder, memory_url)
        yield from read(self, name)

    monkeypatch.setattr(Store, "read", overtaken)
    (pulled,) = pull(memory_url, "one", tmp_path / "here")
    assert Run.open(pulled.folder).checkpoint("newest").step == 9


def test_the_last_line_is_uploaded_when_it_is_complete(memory_url: str, run: RunWriter, tmp_path: Path):
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    push(run.folder, memory_url)
    (pulled,) = pull(memory_url, "one", tmp_path / "here")
    assert (pulled.folder / "metrics.jsonl").read_text().endswith("}\n")


def test_links_drafts_locks_and_commands_stay_at_home(memory_url: str, run: RunWriter):
    (run.folder / "secret.txt").symlink_to("/etc/passwd")
    (run.checkpoints / ".000009-step-9.safetensors.123").write_bytes(b"half")
    (run.folder / "control" / "a.json").write_text("{}")
    push(run.folder, memory_url)
    names = " ".join(Store(memory_url).sizes("one"))
    assert not any(word in names for word in ("secret", "step-9", "lock", "control"))


def test_a_sweep_is_a_folder_of_runs(url: str, tmp_path: Path):
    for name in ("a", "b"):
        with Run.create("demo", runs_dir=tmp_path / "runs" / "lr", name=name) as run:
            run.log({"step": 1, "loss": 0.5})
    (tmp_path / "runs" / "lr" / "sweep.json").write_text("{}")
    assert set(push(tmp_path / "runs" / "lr", url)) == {"lr/a", "lr/b", "lr/.sweep"}
    assert sorted(list_runs(url)) == ["lr/a", "lr/b"]
    pull(url, "lr", tmp_path / "here")
    assert sorted(path.name for path in (tmp_path / "here" / "lr").iterdir()) == ["a", "b", "sweep.json"]
    pull(url, "lr/a", tmp_path / "one of them")
    assert [path.name for path in (tmp_path / "one of them" / "lr").iterdir()] == ["a"]


def test_which_run_is_meant(memory_url: str, tmp_path: Path):
    for name in ("first", "second"):
        with Run.create("demo", runs_dir=tmp_path, name=name) as run:
            push(run.folder, memory_url)
    with pytest.raises(StoreError, match="'s' could be first, second; write more of the name"):
        pull(memory_url, "s", tmp_path / "here")
    with pytest.raises(StoreError, match=r"there is no run 'secnod' in memory://.*; did you mean second"):
        pull(memory_url, "secnod", tmp_path / "here")


def test_a_file_of_a_store_is_there_when_it_is_complete(tmp_path: Path):
    store, seen = Store(f"file://{tmp_path}/store"), []

    def blocks() -> Iterator[bytes]:
        for block in (b"all ", b"of it"):
            yield block
            seen.append("a/manifest" in store.sizes())

    store.write("a/manifest", blocks())
    assert seen == [False, False]
    assert store.sizes() == {"a/manifest": 9}


def test_a_file_that_cannot_be_completed_leaves_nothing(tmp_path: Path):
    store = Store(f"file://{tmp_path}/store")
    store.write("a/manifest", [b"the last"])

    def blocks() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match="No space left"):
        store.write("a/manifest", blocks())
    assert store.sizes() == {"a/manifest": 8}
