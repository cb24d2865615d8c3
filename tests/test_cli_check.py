"""`lapwing check NAME` for people and for programs."""

import json

import pytest

from lapwing.cli import main

QUICKLY = ("adding", "--length", "6", "--width", "4", "--batch-size", "4")


def test_a_table_of_all_that_was_checked(capsys):
    assert main(["check", *QUICKLY, "--only", "structure", "fresh_data", "causality"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[2:5]] == ["structure", "fresh_data", "causality"]
    assert said.splitlines()[0].split() == ["check", "result", "detail", "seconds"]
    assert "not applicable   the task does not define a prediction for each time step" in said
    assert said.endswith("adding: 2 passed, 1 not applicable\n")


def test_json_and_the_cost_beside_it(capsys):
    assert main(["check", *QUICKLY, "--only", "batch_independence", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["experiment"] == "adding"
    (only,) = found["checks"]
    assert (only["check"], only["result"]) == ("batch_independence", "passed")
    assert only["detail"] == "none of 4 examples depends on another (4 of them replaced)"
    assert said.err.startswith("batch_independence: 4 calls of ")


def test_a_finding_is_exit_status_1(capsys, monkeypatch):
    from lapwing.experiments import adding

    same_data = adding.sequences
    monkeypatch.setattr(adding, "sequences", lambda key, *sizes: same_data(adding.jax.random.key(0), *sizes))
    assert main(["check", *QUICKLY, "--only", "fresh_data"]) == 1
    said = capsys.readouterr().out
    assert "failed   batch 1 is the same as batch 0" in said
    assert said.endswith("adding: 1 failed\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check"], "which experiment?"),
        (["check", "addin"], "'addin' is not an experiment; did you mean adding?"),
        (
            ["check", *QUICKLY, "--only", "magic"],
            "'magic' is not a check; there are structure, fresh_data, ",
        ),
    ],
)
def test_wrong_words_get_one_sentence(capsys, words, message):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_skipped_check_is_no_failure(capsys):
    assert main(["check", *QUICKLY, "--budget-s", "0", "--only", "gradients"]) == 0
    assert "skipped   the budget of 0 s is spent" in capsys.readouterr().out
