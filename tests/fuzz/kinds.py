"""What is mutated and who reads it: run folders, machines, IDX files, control files, checkpoints.

A kind is made once in a process and then called with a random generator for each mutation. It raises whatever the code
under test raises, and `WrongError` for what is wrong although nothing was raised.
"""

import contextlib
import gzip
import hashlib
import io
import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from lapwing.cli import main
from lapwing.core import LapwingError
from lapwing.journal import (
    Checkpoint,
    CheckpointError,
    Histogram,
    Image,
    Run,
    Table,
    read_arrays,
    read_checkpoint,
    to_json,
    write_checkpoint,
)
from lapwing.journal._loop import Loop
from lapwing.timing import Laps

from .mutate import damage, mutated


class WrongError(Exception):
    """Something wrong that raised nothing."""


def said(*words: object) -> str:
    """What a command of the command line prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        main([str(word) for word in words])
    text = output.getvalue()
    if bad := {letter for letter in text if not letter.isprintable() and letter not in "\n\t"}:
        raise WrongError(f"{words[0]} prints control characters: {sorted(bad)}")
    return text


class RunFolders:
    """A mutated run among sound ones, read by the commands and by the board."""

    def __init__(self, place: Path, everything: bool):
        self._everything = everything
        self._outside = place / "secret.json"
        self._outside.write_text('{"secret": "which nobody should see"}')
        self._runs, self._sound = place / "runs", place / "sound"
        self._runs.mkdir()
        self._origin = make_run(self._sound, everything)
        for name in ("20260101-000000-first", "20260103-000000-last"):
            with Run.create("adding", {"steps": 3}, runs_dir=self._runs, name=name) as run:
                run.log(*({"step": step, "loss": 1 / (1 + step)} for step in range(3)))
        self._name = "20260102-000000-victim"
        self._files = sorted(
            str(path.relative_to(self._origin)) for path in self._origin.rglob("*") if path.is_file()
        )
        self._before = self._others()

    def __call__(self, random: Random) -> None:
        victim = self._runs / self._name
        shutil.rmtree(victim, ignore_errors=True)
        shutil.copytree(self._origin, victim)
        for file in random.sample(self._files, random.choice([1, 1, 1, 2, 3])):
            content = mutated((victim / file).read_bytes(), random)
            damage(victim / file, random, self._outside, content)
        try:
            self._read(random)
        finally:
            shutil.rmtree(victim)

    def _read(self, random: Random) -> None:
        """The list always, and each of the others for a share of the mutations, by what it costs."""
        if self._others() != self._before:
            raise WrongError("another run is listed differently")
        readers = {
            self._list: 0.3,
            self._show: 0.5,
            self._show_json: 0.4,
            self._compare: 0.4,
            self._tag: 0.2,
            self._card: 0.3,
            self._export: 0.1,
            self._board: 0.4,
            self._report: 0.02,
            self._resume: 0.03 if self._everything else 0.0,
        }
        for reader, share in readers.items():
            if random.random() < share and "which nobody should see" in reader():
                raise WrongError(f"{reader.__name__} shows a file outside the run folder")

    def _said(self, command: str, *words: object) -> str:
        return said(command, *words, "--runs", self._runs)

    def _list(self) -> str:
        return "".join(self._said("runs", "--sort", key) for key in ("age", "loss", "best"))

    def _show(self) -> str:
        return self._said("show", self._name)

    def _show_json(self) -> str:
        return self._said("show", self._name, "--json")

    def _compare(self) -> str:
        return self._said("compare", self._name, "first")

    def _tag(self) -> str:
        return self._said("tag", self._name, "seen")

    def _card(self) -> str:
        with contextlib.suppress(LapwingError):
            return Run.open(self._runs / self._name)._repr_html_()
        return ""

    def _export(self) -> str:
        return self._said("export", self._name, "--out", self._runs.parent / "out.safetensors")

    def _report(self) -> str:
        page = self._runs.parent / "page.html"
        page.unlink(missing_ok=True)
        self._said("report", self._name, "--out", page)
        return page.read_text(encoding="utf-8") if page.exists() else ""

    def _others(self) -> list[Any]:
        listed = json.loads(self._said("runs", "--json"))
        return [run for run in listed if run["run"] != self._name]

    def _resume(self) -> str:
        """Everything of `resume` but the training. A sound source.json would end it early: its file is not there."""
        source = self._runs / self._name / "source.json"
        sound = (self._origin / "source.json").read_bytes()
        if source.is_file() and source.stat().st_size == len(sound):
            source.unlink()
        from lapwing._commands import resume

        def trains(task: Any, config: Any, run: Any, *_: Any, **__: Any) -> int:
            return 0

        before, resume.train_task = resume.train_task, trains  # type: ignore[assignment]
        try:
            return self._said("resume", self._name, "--quiet")
        finally:
            resume.train_task = before

    def _board(self) -> str:
        from lapwing.board._compare import differences, first_difference
        from lapwing.board._details import details, system_columns
        from lapwing.board._live import RunNews, TableNews
        from lapwing.board._logged import logged_entry, logged_image, logged_names
        from lapwing.board._shelf import Shelf

        shelf = Shelf(self._runs)
        for _ in range(3):
            shelf.look()
        rows = {row["run"]: row for row in shelf.rows()}
        if bad := [row["error"] for row in rows.values() if str(row.get("error")).startswith("unexpected")]:
            raise WrongError(f"the board's reader met an {bad[0]}")
        if {row["state"] for name, row in rows.items() if name != self._name} != {"finished"}:
            raise WrongError("another run is shown differently")
        text = str(TableNews(shelf).message())
        folder, other = self._runs / self._name, self._runs / "20260101-000000-first"
        try:
            kept = shelf.get(self._name)
            text += str(RunNews(shelf, [self._name], []).message())
            text += to_json([details(self._name, folder), system_columns(folder), logged_names(kept.logged)])
            for entry in kept.logged:
                words = (entry["name"], entry["kind"], str(entry["step"]))
                text += to_json(logged_entry(folder, kept.logged, *words))
                logged_image(folder, kept.logged, str(entry.get("file")))
            text += to_json([differences([folder, other]), first_difference(folder, other)])
        except LapwingError as error:
            text += str(error)
        return text


def make_run(place: Path, everything: bool) -> Path:
    """A run with all files that a run can have."""
    config: Any = {
        "learning_rate": 0.1,
        "steps": 40,
        "best": "loss",
        "mode": "min",
        "stop": {"minutes": None},
    }
    if everything:
        from lapwing.experiments.adding import Config

        config = Config()
    run = Run.create("adding", config, runs_dir=place, name="20260102-000000-victim", device="cpu")
    with run:
        run.announce_controls(
            {"learning_rate": 0.1, "l1": 0.0}, {"l1": {"type": "float", "help": "", "low": 0}}
        )
        rows = [
            {"step": i, "loss": 1 / (1 + i), "eval_loss": 2.0, "gradient_norm": 1.0 + i} for i in range(40)
        ]
        run.log(*rows[:30])
        run.event("rollback", "back", step=30, to=20, reason="it diverged", learning_rate=0.05)
        run.back_to(20)
        run.log(*rows[20:])
        run.log(step=39, sample="a text", picture=Image(np.zeros((4, 4))), weights=Histogram(np.arange(9.0)))
        run.log(step=39, scores=Table([[1, 2.5], [3, 4.5]], ["a", "b"]))
        run.log(step=39, weights=Histogram(np.arange(5.0)))
        run.note("a note")
        run.tag("best", "paper")
        run.event(
            "applied", command="set", step=12, arguments={"learning_rate": 0.2}, outcome="0.1 → 0.2", id="1"
        )
        run.event("round", step=1, links=[90, 80], error_after=[0.5, 0.25])
        run.add_picture(b"\x89PNG\r\n", "own.png", "a picture")
        run.save_laps({**_laps(), "fused": {"p50": 0.5, "steps_per_call": 10}})
        run.put(
            "system.jsonl", to_json({"time": run.created, "cpu_percent": 99.0, "memory_bytes": 1e9}) + "\n"
        )
        run.put(
            "source.json", '{"path": "own.py", "sha256": "00", "copy": "source/own.py", "target": "own.py"}'
        )
        checkpoint = Checkpoint(39, run.folder / "checkpoints" / "000001-step-39.safetensors", {"best": 1})
        write_checkpoint(checkpoint, {"params/w": np.arange(6.0).reshape(2, 3), "params/b": np.zeros(2)})
    run.put(
        ".best.json", '{"metric": "loss", "mode": "min", "position": 0, "best": {"value": 0.5, "step": 3}}'
    )
    return run.folder


def _laps() -> dict[str, Any]:
    seconds = 0.0
    laps = Laps(clock=lambda: seconds)
    laps.step()
    for _ in range(4):
        for name in ("data", "forward", "forward/inner"):
            with laps(name.rpartition("/")[2]):
                seconds += 0.25
        laps.step()
    return laps.summary().to_json()


class Machines:
    """Machines and published matrices in files, for `lapwing dmm`."""

    def __init__(self, place: Path, everything: bool):
        from lapwing import dmm

        machines = [dmm.readable_detector(), dmm.duplicate_detector().with_options(text="ab.", governor=4.0)]
        self._contents = [machine.to_json().encode() for machine in machines]
        self._contents.append(json.dumps(machines[0].matrix).encode())
        self._file, self._picture = place / "machine.json", place / "machine.png"

    def __call__(self, random: Random) -> None:
        self._file.write_bytes(mutated(random.choice(self._contents), random))
        pruned = self._file.with_suffix(".pruned.json")
        said("dmm", "prune", self._file, "--below", 0.5, "--out", pruned)
        with contextlib.suppress(LapwingError):
            self._interpret(random)
        if random.random() < 0.05:  # What draws takes longer than all others.
            said("dmm", "show", self._file, "--picture", self._picture)
            said("dmm", "run", self._file, "--cycles", 12, "--text", "aab.", "--plot", self._picture)

    def _interpret(self, random: Random) -> None:
        from lapwing import dmm

        machine = dmm.Machine.load(self._file)
        dmm.listing(machine, 8)
        _ = dmm.interpret(machine, 12, **({"text": "aab."} if random.random() < 0.8 else {})).answers


class IdxFiles:
    """Images in IDX files, plain and compressed."""

    def __init__(self, place: Path, everything: bool):
        from lapwing.data import _digits

        self._module, self._place = _digits, place
        pixels = bytes(np.arange(20 * 8 * 8, dtype=np.uint8))
        self._content = struct.pack(">4I", 2051, 20, 8, 8) + pixels
        md5 = hashlib.md5(self._content, usedforsecurity=False).hexdigest()
        self._file = _digits._File("images", 2051, (20, 8, 8), md5)
        self._bomb = gzip.compress(bytes(1 << 24)) * 64  # A gigabyte: members of a file follow each other.

    def __call__(self, random: Random) -> None:
        for path in (plain := self._place / "images", packed := self._place / "images.gz"):
            path.unlink(missing_ok=True)
        if random.random() < 0.01:
            packed.write_bytes(self._bomb)
        elif random.random() < 0.5:
            plain.write_bytes(mutated(self._content, random))
        else:
            packed.write_bytes(mutated(gzip.compress(self._content), random))
        try:
            found = self._module._read(self._place, self._file, verify=True)
        except LapwingError:
            return
        if found.tobytes() != self._content[16:]:
            raise WrongError("damaged images were believed")


class ControlFiles:
    """Commands in the inbox of a loop that runs; with `everything`, values that a training run would take."""

    def __init__(self, place: Path, everything: bool):
        self._everything = everything
        self._run = Run.create("loop", {}, runs_dir=place / "loops")
        self._loop = Loop(self._run, 0, None, lambda step: None, 0)
        self._rate()
        if everything:
            self._train({"learning_rate": 0.2})  # jax starts its threads before there is a limit.
        self._commands = [
            {"command": "set", "arguments": {"learning_rate": 0.2}},
            {"command": "laps", "arguments": {"every": 2}},
            {"command": "checkpoint", "arguments": {}},
            {"command": "rollback", "arguments": {"to": 3}},
            {"command": "note", "arguments": {"text": "a note"}},
        ]

    def _rate(self) -> float:
        return self._run.control("learning_rate", 0.1, low=0.0, high=10.0)

    def __call__(self, random: Random) -> None:
        control = self._run.folder / "control"
        command = json.dumps(random.choice(self._commands)).encode()
        path = control / f"{random.randrange(10**20):020d}.json"
        damage(path, random, control.parent / "config.json", mutated(command, random))
        for command in self._run.poll():
            self._loop._answer(command)
            if self._everything and command.name == "set":
                self._train(command.arguments)
        if not 0 <= self._rate() <= 10:
            raise WrongError(f"a learning rate of {self._rate()} was believed")

    def _train(self, wanted: Mapping[str, Any]) -> None:
        """What a training run would do with a value."""
        from jax import numpy as jnp

        from lapwing.train._control import changed

        with contextlib.suppress(LapwingError):
            new = changed({"learning_rate": jnp.float32(0.1)}, wanted).get("learning_rate", 0.1)
            if not 0 <= float(new) < np.inf:
                raise WrongError(f"a learning rate of {new} was believed")


class Checkpoints:
    """Damaged checkpoints: none is believed."""

    def __init__(self, place: Path, everything: bool):
        self._folder = place / "checkpoints"
        path = self._folder / "000001-step-7.safetensors"
        rng = np.random.default_rng(0)
        self._arrays = {"params/w": rng.normal(size=(8, 5)), "params/b": np.arange(5), "key": np.zeros(0)}
        record = {"best": 1, "data": {"epoch": 3}}
        write_checkpoint(Checkpoint(7, path, record), self._arrays)
        self._path, self._content = path, path.read_bytes()
        self._record = read_checkpoint(path).record

    def __call__(self, random: Random) -> None:
        damage_of = mutated(self._content, random)
        self._path.write_bytes(damage_of)
        try:
            found = read_checkpoint(self._path)
            arrays = read_arrays(found)
        except CheckpointError:
            return
        same = arrays.keys() == self._arrays.keys() and all(
            np.array_equal(arrays[name], self._arrays[name]) for name in arrays
        )
        if damage_of != self._content and not (same and (found.step, found.record) == (7, self._record)):
            raise WrongError("a damaged checkpoint was believed")


KINDS = {
    "runs": RunFolders,
    "machines": Machines,
    "idx": IdxFiles,
    "control": ControlFiles,
    "checkpoints": Checkpoints,
}
COUNTS = {"runs": 20_000, "machines": 5_000, "idx": 5_000, "control": 5_000, "checkpoints": 5_000}
