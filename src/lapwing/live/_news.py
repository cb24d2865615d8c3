"""What is new for one open page: everything at first, then the numbers of now, and the drawing when it has changed."""

from typing import Any

from lapwing.core import LapwingError
from lapwing.journal import to_json

from ._edits import items_read, readers, text_of
from ._player import Player
from ._session import HISTORY, Session
from ._view import Scene, drawing_of, numbers_of, scene_of, shape_of

_MOST_TEXT = 60  # characters around the one that is read
_MOST_EDITS = 50


class News:
    """Messages to one page, each with what has changed since the one before.

    >>> import json
    >>> from lapwing import dmm
    >>> player = Player(Session(dmm.duplicate_detector(), text="aab"))
    >>> news = News(player, "detector.json")
    >>> first = json.loads(news.message())
    >>> first["cycle"], len(first["drawing"]["links"]), news.message()
    (0, 11, None)
    >>> player.step()
    >>> second = json.loads(news.message())
    >>> second["cycle"], second["numbers"]["values"]["input"], "drawing" in second
    (1, 'a 1', False)
    """

    def __init__(self, player: Player, file: str, may_edit: bool = True):
        self._player = player
        self._about = {"file": file, "may_edit": may_edit, "history": HISTORY}
        self._state: tuple[Any, ...] = ()
        self._scene: Scene | None = None
        self._drawn: Any = None
        self._sent_edits: Any = None
        self._answered: tuple[int, Any] = (0, None)

    def message(self) -> str | None:
        """JSON for the page; None if nothing is new."""
        with self._player.held() as session:
            is_first = not self._state
            if not self._is_new(session):
                return None
            content: dict[str, Any] = {
                "cycle": session.cycle,
                **dict(zip(("playing", "speed", "trouble"), self._controls(), strict=True)),
                **session.can(),
                "text": _text(session),
                "answers": self._new_answers(session),
            }
            if is_first:
                journal = session.journal.path.name if session.journal is not None else None
                content |= self._about | {"journal": journal}
            edits = list(session.edits)[-_MOST_EDITS:]
            if edits != self._sent_edits:
                content["edits"] = self._sent_edits = edits
            try:
                scene = self._look(session)
            except LapwingError as error:  # A machine can write anything into the matrix that it holds.
                scene, content["trouble"] = Scene(session.machine, [], 0), str(error)
            content["numbers"] = numbers_of(scene, session)
        drawn = shape_of(scene)
        if drawn != self._drawn:
            self._drawn = drawn
            content["drawing"] = drawing_of(scene)
        return to_json(content)

    def _is_new(self, session: Session) -> bool:
        """Versions and outputs are replaced, never changed: the same objects are the same state."""
        numbers = (session.cycle, len(session.edits), *self._controls())
        known, self._state = self._state, (numbers, session.version, session.outputs, session.last)
        same = (
            known
            and known[0] == numbers
            and all(a is b for a, b in zip(known[1:], self._state[1:], strict=True))
        )
        return not same

    def _controls(self) -> tuple[bool, float, str | None]:
        return self._player.is_playing, self._player.speed, self._player.trouble

    def _look(self, session: Session) -> Scene:
        """What is drawn; the same as before if the machine is, since there may be many thousand links to sort."""
        is_fixed = session.machine.matrix_from is None
        if self._scene is None or not is_fixed or self._scene.machine is not session.machine:
            self._scene = scene_of(session)
        return self._scene

    def _new_answers(self, session: Session) -> dict[str, Any]:
        """The answers since the last message; `first` if what the page has is no longer so."""
        answers = session.answers
        after, known = self._answered
        begins = known is not answers  # A restart begins another list.
        fresh = [each for each in answers if begins or each[0] > after]
        self._answered = session.cycle, answers
        output = session.machine.neurons.get(session.machine.output)
        return {
            "first": begins,
            "cycles": [cycle for cycle, _ in fresh],
            "fields": {
                name: [values.get(name, 0.0) for _, values in fresh]
                for name in (output.inputs if output else ())
            },
        }


def _text(session: Session) -> dict[str, Any] | None:
    """The text around what is read; None if nothing reads one."""
    if not readers(session.machine):
        return None
    text = text_of(session.version)
    if text is None:
        return {"before": "", "now": "", "after": ""}
    read = min(items_read(session.version, session.last), len(text))

    def part(start: int, end: int) -> str:
        items = text[max(start, 0) : max(end, 0)]
        return "".join(each if isinstance(each, str) else to_json(each) for each in items)

    return {
        "before": part(read - 1 - _MOST_TEXT, read - 1),
        "now": part(read - 1, read),
        "after": part(read, read + _MOST_TEXT),
    }
