"""`lapwing evaluate` under AutoAttack: its numbers, and that an interrupted one continues where it was."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from lapwing.attacks import AutoAttack, MaskingCheck, Share
from lapwing.cli import main
from lapwing.core import png_of
from lapwing.experiments._adversarial_autoattack import Kept, Robust, evaluate_autoattack, pictures
from lapwing.experiments._adversarial_pictures import Attacked, image_figure
from lapwing.experiments._adversarial_report import Evaluation
from lapwing.journal import Run, find_run
from lapwing.models import Cnn
from lapwing.train import ConfigError

SETTINGS = AutoAttack(eps=0.05, attacks=("apgd-ce", "square"), steps=2, queries=3)


def subject():
    network = jax.jit(lambda key: Cnn.init(key, (8, 8, 1), width=1))(jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (12, 8, 8, 1))
    labels = np.argmax(np.asarray(network(images)), axis=1)
    labels[:2] = (labels[:2] + 1) % 10
    return network, images, labels


def evaluated(
    settings: AutoAttack = SETTINGS, place: Path | None = None, stop: str = ""
) -> tuple[Robust, list[str]]:
    """The result, and the names of the parts that were run; with `stop`, interrupted within that part."""
    seen: list[str] = []

    def progress(part: str, done: int, total: int) -> None:
        seen.append(part)
        if part == stop:
            raise KeyboardInterrupt

    found = evaluate_autoattack(
        *subject(), settings, 0, curve=False, masking=0, place=place, progress=progress
    )
    return found, seen


def test_an_interrupted_evaluation_continues_after_the_last_attack(tmp_path: Path):
    whole, parts = evaluated()
    assert dict.fromkeys(parts) == dict.fromkeys(["apgd-ce", "square"])
    place = tmp_path / "evaluation.safetensors"
    with pytest.raises(KeyboardInterrupt):
        evaluated(place=place, stop="square")
    assert place.is_file()
    # Other settings are another evaluation, and start anew.
    other, parts = evaluated(dataclasses.replace(SETTINGS, eps=0.01), tmp_path / "other")
    assert "apgd-ce" in parts
    assert other.robust.right >= whole.robust.right
    resumed, parts = evaluated(place=place)
    assert set(parts) == {"square"}
    assert not place.exists()
    for one, two in zip(whole.found[:5], resumed.found[:5], strict=True):
        np.testing.assert_array_equal(one, two)
    assert whole.natural == Share(10, 12)
    assert [name for name, _ in whole.after] == ["natural", "apgd-ce", "square"]


def test_a_damaged_or_foreign_state_is_measured_again(tmp_path: Path):
    place = tmp_path / "evaluation.safetensors"
    kept = Kept.open(place, "me")
    kept.keep_state(
        {"fingerprint": np.array("f"), "done": np.array(1), "images": np.ones((2, 3), np.float32)}
    )
    kept.add("curve", (0.1, 3, 4))
    again = Kept.open(place, "me")
    assert again.record["curve"] == [[0.1, 3, 4]]
    assert again.state is not None
    assert str(again.state["fingerprint"]) == "f"
    np.testing.assert_array_equal(again.state["images"], np.ones((2, 3)))
    assert Kept.open(place, "somebody else").state is None
    content = bytearray(place.read_bytes())
    content[-3] ^= 1
    place.write_bytes(bytes(content))
    assert Kept.open(place, "me").state is None
    kept.remove()
    assert not place.exists()


@pytest.mark.slow
def test_pictures_show_images_that_fell_and_images_that_held_in_grey_and_in_colour():
    for channels in (1, 3):
        images = np.random.default_rng(0).random((3, 6, 6, channels))
        labels = np.array([1, 2, 3])
        groups = [
            Attacked("fell", images, images * 0.9, labels, labels + 1, ["apgd-ce", "square", "fab-t"]),
            Attacked("held", images[:2], images[:2] * 0.9, labels[:2], labels[:2]),
            Attacked("nobody", images[:0], images[:0], labels[:0], labels[:0]),
        ]
        assert len(image_figure(groups).axes) == 18
        assert png_of(lambda groups=groups: image_figure(groups), dpi=30).startswith(b"\x89PNG")
    assert not image_figure([]).axes


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="queries should be at least 1, but is 0"):
        Evaluation(queries=0)
    with pytest.raises(ConfigError, match=r"eps should be a positive number, but is -0\.1"):
        Evaluation(eps=-0.1)
    with pytest.raises(ConfigError, match="masking should be at least 0, but is -1"):
        Evaluation(masking=-1)


def test_a_result_has_its_numbers_in_json():
    network, images, labels = subject()
    found = SETTINGS(network, images, labels, jax.random.key(0))
    check = MaskingCheck("flat_loss", True, "It is flat.", {"flat": 1.0})
    robust = Robust(SETTINGS, found, ((0.0, Share(10, 12)), (0.05, Share(3, 12))), (check,))
    told = json.loads(json.dumps(robust.to_json()))
    assert told["natural"]["right"] == 10
    assert told["masking"][0]["flagged"]
    assert [point["eps"] for point in told["curve"]] == [0.0, 0.05]
    assert set(pictures(network, images, labels, robust)) == {"robustness.png", "attacked.png"}


@pytest.mark.slow
def test_the_command_attacks_draws_and_examines(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--width", "1", "--steps", "60", "--batch-size", "32", "--validation", "10", "--laps-every", "0"]
    words = ["--attack.steps", "2", "--validation-steps", "2", "--no-check"]
    assert main(["train", "adversarial", *small, *words]) == 0
    capsys.readouterr()
    words = ["--steps", "5", "--queries", "20", "--examples", "30", "--masking", "10"]
    assert main(["evaluate", "latest", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["after"]) == ["apgd-ce", "apgd-t", "fab-t", "square"]
    shares = [told["natural"]["right"], *(share["right"] for share in told["after"].values())]
    assert shares == sorted(shares, reverse=True)
    assert told["robust"]["right"] == shares[-1]
    assert len(told["curve"]) == 7
    assert [check["name"] for check in told["masking"]] == [
        "square_after_gradients",
        "black_box",
        "flat_loss",
        "large_eps",
        "more_steps",
        "noise",
    ]
    run = Run.open(find_run("latest"))
    assert {path.name for path in run.pictures} == {"robustness.png", "attacked.png"}
    assert not run.file("evaluation.safetensors").exists()
    assert "AutoAttack standard, linf 0.15" in run.story
    assert main(["evaluate", "latest", *words, "--no-curve"]) == 0
    said = capsys.readouterr().out
    assert "after square" in said
    assert "signs of gradient masking" in said
