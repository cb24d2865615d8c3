"""The numbers of a run as the board keeps them are those that `Run.columns()` and `glance` find."""

from pathlib import Path

import numpy as np
import pytest

from lapwing.board._digest import Digest
from lapwing.journal import Run
from lapwing.report import glance

from .serving import falling, started


def read(digest: Digest) -> Digest:
    while digest.read_on():
        pass
    return digest


def values_of(digest: Digest, name: str) -> list[tuple[int, float]]:
    """A short curve, of which each bucket is a row."""
    curve = digest.series[name].since(-1, 0)
    return list(zip(curve["step"], curve["high"], strict=True))


def test_it_finds_what_a_glance_finds(tmp_path: Path):
    run = started(tmp_path, falling(500))
    digest, seen = read(Digest(run)), glance(run)
    assert (digest.shown.best, digest.shown.best_step, digest.shown.latest["loss"]) == (
        seen.best,
        seen.best_step,
        seen.loss,
    )
    assert digest.shown.speed == pytest.approx(seen.steps_per_second)
    assert digest.part_read == 1.0


def test_what_a_rollback_undid_is_gone(tmp_path: Path):
    run = started(tmp_path, [3.0, 2.0, 1.0, 50.0, 0.1])
    digest = read(Digest(run))
    assert (digest.shown.best, values_of(digest, "loss")[-1]) == (0.1, (4, 0.1))
    before = digest.reading
    run.back_to(3)
    run.log({"step": 3, "loss": 0.7})
    read(digest)
    assert values_of(digest, "loss") == [(0, 3.0), (1, 2.0), (2, 1.0), (3, 0.7)]
    assert (digest.shown.best, digest.shown.best_step) == (0.7, 3)
    assert digest.reading > before


def test_several_rollbacks_in_one_file_are_as_the_journal_has_them(tmp_path: Path):
    chance = np.random.default_rng(0)
    run = Run.create("adding", runs_dir=tmp_path)
    step = 0
    for _ in range(30):
        for _ in range(int(chance.integers(1, 30))):
            run.log({"step": step, "loss": float(chance.normal())})
            step += 1
        step = int(chance.integers(0, step + 1))
        run.back_to(step)
    digest = read(Digest(run))
    steps, losses = run.curve("loss")
    assert values_of(digest, "loss") == list(zip(steps.tolist(), losses.tolist(), strict=True))


def test_rows_of_several_kinds_and_what_is_not_a_number(tmp_path: Path):
    run = Run.create("adding", runs_dir=tmp_path)
    run.log({"step": 0, "loss": 1.0}, {"step": 1, "loss": float("nan")}, {"step": 1, "eval_loss": 2.0})
    run.log({"step": 2, "loss": float("inf")}, {"step": 3, "loss": 0.5})
    digest = read(Digest(run))
    assert values_of(digest, "loss") == [(0, 1.0), (1, None), (2, None), (3, 0.5)]
    assert digest.series["loss"].since(-1, 0)["bad"] == [0, 1, 1, 0]
    assert values_of(digest, "eval_loss") == [(1, 2.0)]


DAMAGE = [
    "\0",
    "5",
    '{"step": "x", "loss": 1}',
    '{"loss": 1}',
    '{"step": 9, "loss": [1, 2]}',
    '{"step": 9, "loss": 1' + "0" * 400 + "}",
    '{"back_to": "x"}',
    '{"a": {"back_to": 1}}',
    '{"back_to": 1, oh}',
    "[" * 100_000 + '"back_to"',
]


@pytest.mark.parametrize("line", DAMAGE, ids=lambda line: line[:24])
def test_a_damaged_line_hides_nothing_else_and_ends(tmp_path: Path, line: str):
    run = Run.create("adding", runs_dir=tmp_path)
    run.log({"step": 0, "loss": 3.0})
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    run.log({"step": 10, "loss": 2.0})
    digest = read(Digest(run))
    assert [values_of(digest, "loss")[0], values_of(digest, "loss")[-1]] == [(0, 3.0), (10, 2.0)]


def test_a_torn_line_is_waited_for(tmp_path: Path):
    run = Run.create("adding", runs_dir=tmp_path)
    path = run.folder / "metrics.jsonl"
    path.write_text('{"step": 0, "loss": 3.0}\n{"step": 1, "lo')
    digest = read(Digest(run))
    assert values_of(digest, "loss") == [(0, 3.0)]
    with path.open("a") as file:
        file.write('ss": 2.0}\n{"back_to": 1')
    assert values_of(read(digest), "loss") == [(0, 3.0), (1, 2.0)]
    with path.open("a") as file:
        file.write("}\n")
    assert values_of(read(digest), "loss") == [(0, 3.0)]


def test_forgotten_curves_come_back_when_they_are_wanted(tmp_path: Path):
    run = started(tmp_path, falling(100))
    digest = read(Digest(run))
    before = values_of(digest, "loss")
    digest.forget_curves()
    assert digest.nbytes == 0
    run.log({"step": 100, "loss": 1e-9})
    assert read(digest).shown.best == 1e-9
    assert not digest.series
    digest.want_curves()
    assert values_of(read(digest), "loss") == [*before, (100, 1e-9)]


def test_a_long_run_has_a_preview_until_it_is_read(tmp_path: Path):
    run = Run.create("adding", runs_dir=tmp_path)
    line = '{{"step": {0}, "loss": {1}, "gradient_norm": 1.2345678901, "learning_rate": 0.1234567890, "time": {0}}}\n'
    content = [line.format(step, 2.0 - step / 100_000) for step in range(100_000)]
    content[31_415] = line.format(31_415, 777.0)
    (run.folder / "metrics.jsonl").write_text("".join(content))
    digest = Digest(run)
    assert digest.read_on()
    preview = digest.series["loss"].since(-1, 0)
    assert digest.part_read < 0.1
    assert len(preview["step"]) > 500
    assert preview["step"] == sorted(preview["step"])
    assert (preview["step"][0], preview["step"][-1]) == (1, 99_999)
    assert (digest.shown.latest["step"], digest.shown.best) == (99_999, None)
    before = digest.reading
    read(digest)
    assert digest.reading > before
    assert max(digest.series["loss"].since(-1, 0)["high"]) == 777.0
    assert digest.shown.best == pytest.approx(1.00001)


def test_what_was_there_is_shown_until_all_is_read_again(tmp_path: Path):
    run = started(tmp_path, [3.0, 2.0, 1.0])
    digest = read(Digest(run))
    run.back_to(2)
    assert digest.read_on()
    assert values_of(digest, "loss") == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert values_of(read(digest), "loss") == [(0, 3.0), (1, 2.0)]
