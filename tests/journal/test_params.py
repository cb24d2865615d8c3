"""What a run has learned: as nested arrays, as a tree like another, as a model, and as a file for other programs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.cli import main
from lapwing.journal import CheckpointError, Run
from lapwing.task import Task
from lapwing.train import FitConfig, fit
from lapwing.train._config import Checkpointing


def init(key):
    return {
        "layers": [{"w": jax.random.normal(key, (2, 3))}, {"w": jnp.ones((3, 1))}],
        "scale/it": jnp.bfloat16(0.5),
        "file": jnp.int8([1, 2]),
        "pair": (jnp.zeros(1), jnp.ones(())),
    }


def loss(params, x):
    y = (
        jnp.tanh(x @ params["layers"][0]["w"])
        @ params["layers"][1]["w"]
        * params["scale/it"].astype(jnp.float32)
    )
    return jnp.mean((y - params["pair"][0]) ** 2), {}


def mask(params):
    return jax.tree.map(lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating), params)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Run, dict]:
    task = Task(init, lambda key, step: jax.random.normal(key, (4, 2)), loss, trainable=mask)
    config = FitConfig(
        steps=20, learning_rate=0.1, laps_every=0, checkpoint=Checkpointing(every=5, keep_every=5)
    )
    run = Run.create("mine", config, runs_dir=tmp_path_factory.mktemp("runs"))
    result = fit(task, config, run, quiet=True)
    return Run.open(run.folder), result.params


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_parameters_are_nested_numpy_arrays_of_the_same_bits(trained):
    run, params = trained
    found = run.params("newest")
    assert isinstance(found["layers"], list)
    assert isinstance(found["pair"], list)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found))
    assert str(found["scale/it"].dtype) == "bfloat16"
    same({**found, "pair": tuple(found["pair"])}, params)


def test_a_tree_like_another(trained):
    run, params = trained
    found = run.params("newest", like=jax.tree.map(jnp.zeros_like, params))
    assert jax.tree.structure(found) == jax.tree.structure(params)
    same(found, params)
    shapes = jax.eval_shape(init, jax.random.key(0))
    same(run.params(20, like=shapes), params)
    with pytest.raises(
        CheckpointError,
        match=r"other parameters than `like`: w is missing in the checkpoint and float32\[3\] in",
    ):
        run.params(like={"w": jnp.zeros(3)})


def test_the_best_the_newest_or_a_step(trained):
    run, _ = trained
    assert [run.checkpoint(which).step for which in ("newest", 5, 15)] == [20, 5, 15]
    best = run.checkpoint("best")
    assert best.serial == run.checkpoint("newest").record["best"]
    assert run.params(5)["pair"][0] != run.params(20)["pair"][0]
    with pytest.raises(
        CheckpointError, match=r"mine-\w+ has no checkpoint of step 7; there are: (0, )?5, 10, 15, 20"
    ):
        run.params(7)
    with pytest.raises(
        CheckpointError, match=r"which checkpoint\? 'best', 'newest' or a step, but not 'last'"
    ):
        run.params("last")  # type: ignore
    with pytest.raises(CheckpointError, match=r"has no part 'ema'; it has .*params"):
        run.params(part="ema")


def test_a_run_without_checkpoints_gets_a_sentence(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path, name="empty") as run:
        pass
    with pytest.raises(CheckpointError, match="empty has no checkpoint; there are: none"):
        run.params()


def test_damaged_checkpoints_are_named(trained, tmp_path: Path):
    copy = Run.open(shutil.copytree(trained[0].folder, tmp_path / "copy"))
    newest = copy.checkpoint("newest")
    content = newest.path.read_bytes()
    weights = copy.params("newest")["layers"][0]["w"].tobytes()
    newest.path.write_bytes(content.replace(weights, bytes(len(weights))))
    with pytest.raises(CheckpointError, match="params/layers/0/w was changed after it was written"):
        copy.params("newest")
    newest.path.write_bytes(content.replace(b"layers", b"livers"))
    for which in ("newest", "best"):
        with pytest.raises(
            CheckpointError,
            match=rf"{newest.path.name} is damaged: its header .*; it is the newest one of copy, and the newest "
            r"complete one is that of step \d+: ask for that step to use it",
        ):
            copy.params(which)
    assert copy.checkpoint(15).step == 15


def test_parameters_are_read_without_jax(trained):
    code = "import sys, lapwing as lw\nw = lw.Run.open(sys.argv[1]).params()['layers'][0]['w']\n"
    code += "print(w.shape, 'jax' in sys.modules)"
    command = [sys.executable, "-c", code, trained[0].folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "(2, 3) False\n"


# As a file.


def test_another_reader_of_safetensors_reads_an_export(trained, tmp_path: Path, capsys):
    library = pytest.importorskip("safetensors.flax")
    run, _ = trained
    out = tmp_path / "model.safetensors"
    assert main(["export", str(run.folder), "--newest", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 6 arrays, 14 numbers, of step 20\n"
    arrays = library.load_file(out)
    same(arrays["layers/0/w"], run.params("newest")["layers"][0]["w"])
    assert arrays["scale%2Fit"].dtype == jnp.bfloat16
    with pytest.importorskip("safetensors").safe_open(out, "flax") as file:
        assert file.metadata() == {"run": run.name, "experiment": "mine", "step": "20"}


def test_an_export_for_numpy(trained, tmp_path: Path, monkeypatch, capsys):
    run, _ = trained
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run.folder), "--format", "npz", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["file"] == f"{run.name}.npz"
    with np.load(said["file"]) as arrays:
        assert sorted(arrays) == sorted(said["arrays"])
        same(arrays["file"], [1, 2])
        assert (arrays["scale%2Fit"].dtype, arrays["pair/1"].shape) == (np.float32, ())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--best", "--newest"], "--best and --newest are two checkpoints; give one of them"),
        (["--step", "3"], "has no checkpoint of step 3; there are: "),
        (["--part", "ema"], "has no part 'ema'; it has "),
        (
            ["--out", "no/such/folder/x"],
            "cannot write 'no/such/folder/x': No such file or directory; name another file",
        ),
    ],
)
def test_an_export_that_cannot_be_gets_a_sentence(trained, capsys, words, sentence):
    assert main(["export", str(trained[0].folder), *words]) == 2
    assert sentence in capsys.readouterr().err


# As a model.


@pytest.mark.slow
def test_the_model_of_a_run(tmp_path: Path):
    from lapwing.experiments import adding

    config = adding.Config(steps=2, length=4, width=3, batch_size=2, laps_every=0)
    with Run.create("adding", config, runs_dir=tmp_path) as run:
        result = fit(adding.build(config), config, run, quiet=True)
    inputs, _ = adding.sequences(jax.random.key(1), 5, 4)
    model = Run.open(run.folder).model("newest")
    same(model(inputs), adding.predict(result.params, inputs))


STATEFUL = """
import jax, jax.numpy as jnp
from lapwing.task import Task

def build(config):
    return Task(
        init=lambda key: ({"w": jnp.zeros(3)}, {"count": jnp.zeros(())}),
        data=lambda key, step: jax.random.normal(key, (4, 3)),
        loss=lambda params, x, state, key: (jnp.mean((x @ (params["w"] - 1)) ** 2), {}, {"count": state["count"] + 1}),
    )

def model(config, params, state):
    return params["w"], state["count"]
"""


def test_a_model_has_the_averaged_parameters_and_the_state(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("counted.py").write_text(STATEFUL)
    words = "train counted.py --steps 6 --ema 0.5 --laps-every 0 --quiet --no-check --name one"
    assert main(words.split()) == 0
    run = Run.open("runs/one")
    w, count = run.model("newest")
    assert count == 6
    same(w, run.params("newest", part="ema")["w"])
    assert not np.array_equal(w, run.params("newest")["w"])
    assert main(["export", "one", "--newest"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "one.safetensors: 1 arrays, 3 numbers, of step 6",
        "the run also has averaged parameters, with which it was evaluated: --part ema",
        "the run also has a state of the model, such as the statistics of batch normalization: --part model",
    ]


def test_an_experiment_without_a_model_says_so(trained, tmp_path: Path):
    with Run.create("latent-thinker", runs_dir=tmp_path) as run:
        pass
    with pytest.raises(
        ValueError, match=r"the experiment latent-thinker has no function model\(config, params\); write one"
    ):
        run.model()
