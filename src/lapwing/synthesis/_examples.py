"""What a machine should learn: texts, and the expected answers to each, cycle by cycle."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from lapwing import dmm
from lapwing.core import UnreadableError, parse_json, replace_file
from lapwing.dmm import Machine, MachineError, Text


@dataclass(frozen=True)
class Examples:
    """Texts, all read for the same number of cycles, and the expected answers.

    A text is a string, or a sequence of V-values, one for each time that the input neuron reads.
    """

    texts: tuple[Text, ...]
    targets: Float[np.ndarray, "texts cycles fields"]
    fields: tuple[str, ...]
    period: int | None = None
    """cycles from one character to the next; by default the machine's own, which is 10"""

    @property
    def cycles(self) -> int:
        return self.targets.shape[1]

    @property
    def to_read(self) -> list[Text] | None:
        """The texts, for `dmm.compile`; None if the only one is empty: a machine that reads nothing has one run."""
        return None if self.texts == ("",) else list(self.texts)

    @classmethod
    def from_teacher(cls, teacher: Machine, texts: Sequence[Text], cycles: int, **options: Any) -> "Examples":
        """Takes the answers of a machine.

        >>> from lapwing import dmm
        >>> examples = Examples.from_teacher(dmm.duplicate_detector(), ["aab", "a.."], 45)
        >>> examples.targets[:, -1].tolist()
        [[2.0, 0.0], [3.0, 4.0]]
        """
        program = dmm.compile(teacher, cycles, texts=_listed(texts), **options)
        answers = np.asarray(jax.jit(program.answers)(program.start))
        return cls(tuple(texts), answers, program.fields, options.get("period"))

    def program(self, machine: Machine, **options: Any) -> dmm.Program:
        """Compiles a machine for these texts.

        >>> from lapwing import dmm
        >>> quick = Examples.from_teacher(dmm.duplicate_detector(), ["aab"], 20, period=4)
        >>> quick.program(dmm.duplicate_detector()).cycles
        20
        """
        period = {} if self.period is None else {"period": self.period}
        return dmm.compile(machine, self.cycles, texts=self.to_read, **{**options, **period})

    @classmethod
    def from_function(
        cls,
        function: Callable[[Text, int], Mapping[str, Sequence[float]]],
        texts: Sequence[Text],
        cycles: int,
    ) -> "Examples":
        """Takes the results of a function `(text, cycles) -> {field: a number for each cycle}`.

        >>> def count(text, cycles):
        ...     return {"dict-1": [min(t // 10, len(text)) for t in range(cycles)]}
        >>> Examples.from_function(count, ["ab", "c"], 30).targets[:, -1].tolist()
        [[2.0], [1.0]]
        """
        found = cls._from_answers([(text, function(text, cycles)) for text in _listed(texts)])
        if found.cycles != cycles:
            raise MachineError(
                f"expected {cycles} numbers, one for each cycle, in each field that the function returns, but it "
                f"returned {found.cycles}"
            )
        return found

    @classmethod
    def load(cls, file: str | Path) -> "Examples":
        """Reads a JSON file, a list of `{"text": ..., "targets": {field: [a number for each cycle]}}`, each perhaps
        with a `"period"`. Where there is no such file, the name of a machine of the library gives the library's
        examples of it.

        >>> Examples.load("parity").texts
        ('011010011', '110010001')
        """
        known = dmm.library().get(str(file))
        if known is not None and known.examples and not Path(file).exists():
            return cls._from_answers([(each["text"], each["targets"]) for each in known.targets()])
        given = _read(Path(file))
        periods = {each.get("period") for each in given}
        if len(periods) > 1 or not all(each is None or type(each) is int for each in periods):
            raise MachineError(f"expected one period, a whole number, for all examples in {str(file)!r}")
        found = cls._from_answers([(each["text"], each["targets"]) for each in given])
        return dataclasses.replace(found, period=periods.pop())

    def save(self, file: str | Path) -> None:
        """Writes a JSON file for `load`, and for `--examples` on the command line.

        >>> import tempfile
        >>> from lapwing import dmm
        >>> examples = Examples.from_teacher(dmm.Machine.load("parity"), ["0110", "1011"], 8, period=2)
        >>> file = Path(tempfile.mkdtemp()) / "examples.json"
        >>> examples.save(file)
        >>> again = Examples.load(file)
        >>> again.texts, again.period, np.array_equal(again.targets, examples.targets)
        (('0110', '1011'), 2, True)
        """
        period = {} if self.period is None else {"period": self.period}
        rows = [
            {"text": text, "targets": by_field(self.fields, answers), **period}
            for text, answers in zip(self.texts, self.targets, strict=True)
        ]
        replace_file(Path(file), json.dumps(rows) + "\n")

    @classmethod
    def _from_answers(cls, answers: Sequence[tuple[Text, Mapping[str, Sequence[float]]]]) -> "Examples":
        if not answers:
            raise MachineError("there are no examples; give at least one text with its expected answers")
        checked = [(_text(text), _targets(text, targets)) for text, targets in answers]
        fields = tuple(checked[0][1])
        lengths = {len(numbers) for _, targets in checked for numbers in targets.values()}
        if any(targets.keys() != checked[0][1].keys() for _, targets in checked) or len(lengths) != 1:
            raise MachineError(
                f"expected targets for the same fields in all examples, as the first has for {list(fields)}, and for "
                f"the same number of cycles, but there are fields of {sorted(lengths)} cycles"
            )
        numbers = [np.stack([targets[field] for field in fields], axis=1) for _, targets in checked]
        return cls(tuple(text for text, _ in checked), np.stack(numbers), fields)

    def expected_of(self, fields: Sequence[str]) -> Float[np.ndarray, "texts cycles fields"]:
        """Returns the targets in the order of these fields of an output neuron."""
        if missing := {*self.fields} ^ {*fields}:
            raise MachineError(
                f"the examples have targets for {list(self.fields)}, but the machine answers on {list(fields)}; "
                f"{min(missing)!r} is only in one of them"
            )
        return self.targets[..., [self.fields.index(field) for field in fields]]


def _read(file: Path) -> list[dict[str, Any]]:
    expected = f"expected in {str(file)!r} a JSON list of examples, each with text and targets, but"
    try:
        content = parse_json(file.read_bytes())
    except OSError as error:
        raise MachineError(f"{expected} cannot read it: {error.strerror}") from None
    except UnreadableError as error:
        raise MachineError(f"{expected} {error}") from None
    if not isinstance(content, list):
        raise MachineError(f"{expected} it has {_kind(content)}")
    for number, each in enumerate(content, start=1):
        if not (isinstance(each, dict) and {"text", "targets"} <= each.keys()):
            raise MachineError(f"{expected} number {number} is {_kind(each)}")
    return content


def _kind(value: Any) -> str:
    return f"an object with {', '.join(map(repr, value))}" if isinstance(value, dict) else repr(value)[:80]


def _listed(texts: Sequence[Text]) -> list[Text]:
    """The texts as a list. A string is a sequence too, but one of characters."""
    if isinstance(texts, str | Mapping) or not isinstance(texts, Iterable):
        raise MachineError(f"expected texts in a list, like texts=['aab', 'abc'], but got {texts!r:.80}")
    return list(texts)


def _text(text: Any) -> Text:
    is_text = isinstance(text, Sequence) and all(isinstance(item, str | float | int | dict) for item in text)
    if not is_text:
        raise MachineError(
            f"expected the text of an example, a string or a list of V-values, but found {text!r:.80}"
        )
    return text if isinstance(text, str) else tuple(text)


def _targets(text: Any, targets: Any) -> dict[str, np.ndarray]:
    try:
        found = {field: np.asarray(numbers, float) for field, numbers in targets.items()}
    except (AttributeError, TypeError, ValueError):
        found = {}
    if not found or any(numbers.ndim != 1 or not np.isfinite(numbers).all() for numbers in found.values()):
        raise MachineError(
            f"expected the targets of {text!r:.40} to be {{field: [a number for each cycle]}}, "
            f"but they are {targets!r:.80}"
        )
    return found


def errors_on(
    machine: Machine, examples: Examples, **options: Any
) -> tuple[Float[np.ndarray, " texts"], Float[np.ndarray, "texts cycles fields"]]:
    """Returns the sum of squared errors for each text, and the answers.

    >>> from lapwing import dmm
    >>> examples = Examples.from_teacher(dmm.duplicate_detector(), ["test string."], 140)
    >>> [f"{error:.4f}" for error in errors_on(dmm.readable_detector(), examples, governor=4.0)[0]]
    ['0.0016']
    """
    program = examples.program(machine, **options)
    examples.expected_of(program.fields)
    order = [program.fields.index(field) for field in examples.fields]
    answers = np.asarray(jax.jit(program.answers)(program.start))[..., order].reshape(examples.targets.shape)
    return np.sum((answers - examples.targets) ** 2, axis=(1, 2)), answers


def tests_of(machine: Machine, name: str, examples: Examples, **options: Any) -> list[dict[str, Any]]:
    """Returns for each text its sum of squared errors and its worst cycle.

    >>> from lapwing import dmm
    >>> examples = Examples.from_teacher(dmm.duplicate_detector(), ["ab.", "aa."], 40)
    >>> [row["error"] for row in tests_of(dmm.duplicate_detector(), "seen", examples)]
    [0.0, 0.0]
    """
    errors, answers = errors_on(machine, examples, **options)
    far = np.max(np.abs(answers - examples.targets), axis=2)
    return [
        {
            "group": name,
            "text": text if isinstance(text, str) else list(text),
            "cycles": examples.cycles,
            "error": float(error),
            "worst_cycle": int(off.argmax()) + 1,
            "worst_error": float(off.max()),
        }
        for text, error, off in zip(examples.texts, errors, far, strict=True)
    ]


def by_field(fields: Sequence[str], answers: Float[np.ndarray, "cycles fields"]) -> dict[str, list[float]]:
    """Returns the answers to one text as `interpret` gives them.

    >>> by_field(["dict-1", "dict-2"], np.array([[0.0, 1.0], [2.0, 3.0]]))
    {'dict-1': [0.0, 2.0], 'dict-2': [1.0, 3.0]}
    """
    return {field: answers[:, i].tolist() for i, field in enumerate(fields)}
