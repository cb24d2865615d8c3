"""One phase of a step: the context manager of `with laps(name)`, with the statistics of that phase.

There is one object per path ("attack/forward"), made at its first use and reused: a new context manager for every lap
would be half of the overhead.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, Self, TypeVar, get_args

from ._tally import Tally

if TYPE_CHECKING:
    from ._laps import Laps

Stage = Literal["trace", "lower", "compile"]
STAGES: tuple[Stage, ...] = get_args(Stage)

# Quantiles come from a sample of up to 64 laps of a phase per step, and up to 1024 per run.
STEP_ROOM = 64
RUN_ROOM = 1024

# The name of the rest of a step in every output, so no phase may have it.
UNACCOUNTED = "unaccounted"

Value = TypeVar("Value")


def check_name(name: str) -> None:
    if not isinstance(name, str) or not name or "/" in name or name == UNACCOUNTED:
        raise ValueError(
            f"expected the name of a phase (a text without '/', not {UNACCOUNTED!r}), found {name!r}; "
            "for a phase inside another nest the with-statements"
        )


class Phase:
    """A named part of a step; made by `laps(name)`, not directly.

    >>> from lapwing.timing import Laps
    >>> laps = Laps(sync=lambda value: value)   # of jax: jax.block_until_ready
    >>> with laps("forward") as phase, laps("attention"):
    ...     total = phase.wait_for(sum(range(9)))
    >>> total, phase.path, [child.path for child in phase.descendants()]
    (36, 'forward', ['forward/attention'])
    """

    __slots__ = (
        "_laps", "children", "cpu_start", "first", "name", "parent",
        "path", "stages", "start", "steady", "step", "sync",
    )  # fmt: skip

    def __init__(self, laps: "Laps", parent: "Phase | None", name: str, random: Callable[[], float]) -> None:
        self._laps = laps
        self.parent = parent
        self.name = name
        self.path = f"{parent.path}/{name}" if parent is not None and parent.parent is not None else name
        self.children: dict[str, Phase] = {}
        self.stages: dict[Stage, float] = {}
        self.first: float | None = None
        self.step = Tally(STEP_ROOM, random)
        self.steady = Tally(RUN_ROOM, random)
        self.sync: Callable[[], object] | None = None
        self.start = 0.0
        self.cpu_start = 0.0

    def descendants(self) -> Iterator["Phase"]:
        """All phases inside this one, a parent before its children, in the order of their first use."""
        for child in self.children.values():
            yield child
            yield from child.descendants()

    def wait_for(self, value: Value) -> Value:
        """Waits until `value` is computed, so that its time counts in this phase, and returns it.

        The `sync` of the Laps does the waiting: `Laps(sync=jax.block_until_ready)`.
        """
        sync = self._laps._sync
        if sync is None:
            raise RuntimeError(
                f"phase {self.path!r} cannot wait: expected a Laps with sync, found one without; "
                "write Laps(sync=jax.block_until_ready)"
            )
        sync(value)
        return value

    def __enter__(self) -> Self:
        self._laps._enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an exception, the value to wait for may not exist.
        if self.sync is None or kind is not None:
            self._laps._leave(self)
            return
        try:
            self.sync()
        finally:
            self._laps._leave(self)
