"""One example for each command, which its `--help` ends with; `dmm show` and others of two words have their own."""

from collections.abc import Sequence

EXAMPLES = {
    "list": "lapwing list --json",
    "new": "lapwing new my_model.py --like transformer",
    "train": "lapwing train adding --steps 2000 --lr 0.01 --name first",
    "resume": "lapwing resume first",
    "sweep": "lapwing sweep adding --grid learning_rate=0.01,0.003 --seeds 3 --steps 500",
    "runs": "lapwing runs --sort best",
    "show": "lapwing show latest",
    "tag": "lapwing tag latest baseline",
    "rm": "lapwing rm first",
    "push": "lapwing push latest s3://bucket/runs",
    "pull": "lapwing pull s3://bucket/runs first",
    "report": "lapwing report latest --out first.html",
    "export": "lapwing export latest --format npz --out first.npz",
    "board": "lapwing board --port 8000",
    "evaluate": "lapwing evaluate latest --best",
    "think": 'lapwing think latest "9999999999999+1"',
    "compare": "lapwing compare first second --params",
    "time": "lapwing time --marker epoch -- python train.py",
    "check": "lapwing check my_model.py --only gradients fresh_data",
    "explain": "lapwing explain adding --time",
    "bench": "lapwing bench gru --out results",
    "info": "lapwing info --json",
    "set": "lapwing set latest lr=0.003 clip=1",
    "pause": "lapwing pause latest",
    "stop": "lapwing stop latest",
    "checkpoint": "lapwing checkpoint latest",
    "rollback": "lapwing rollback latest best",
    "laps": "lapwing laps latest 10",
    "note": 'lapwing note latest "a lower learning rate from here on"',
    "dmm": "lapwing dmm run duplicate-detector",
    "dmm list": "lapwing dmm list",
    "dmm show": "lapwing dmm show duplicate-detector",
    "dmm run": "lapwing dmm run duplicate-detector",
    "dmm test": 'lapwing dmm test readable-detector --text "test string." --governor 4',
    "dmm repair": "lapwing dmm repair broken.json --examples counter",
    "dmm prune": "lapwing dmm prune machine.json --below 0.1",
    "dmm live": "lapwing dmm live oscillator",
    "dmm replay": "lapwing dmm replay oscillator.live.jsonl",
}


def example_of(words: Sequence[str]) -> str | None:
    """The example for a command line.

    >>> example_of(["dmm", "show", "--help"]), example_of(["note", "--help"])
    ('lapwing dmm show duplicate-detector', 'lapwing note latest "a lower learning rate from here on"')
    """
    return EXAMPLES.get(" ".join(words[:2])) or EXAMPLES.get(words[0])


def asks_for_help(words: Sequence[str]) -> bool:
    """Whether a command line asks for help; what follows two dashes is of another command.

    >>> asks_for_help(["train", "adding", "-h"]), asks_for_help(["time", "--", "python", "-h"])
    (True, False)
    """
    own = words[: words.index("--")] if "--" in words else words
    return any(word in ("-h", "--help") for word in own)
