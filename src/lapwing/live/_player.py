"""A session that plays: one thread runs cycles at a chosen speed, and one lock keeps edits between them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lapwing.core import LapwingError

from ._edits import Edit
from ._journal import LiveError
from ._session import Session

SPEED = 10.0
FASTEST = 1000.0


class Player:
    """Plays a session, from any thread.

    **Attributes**: `trouble`, why the last cycle failed, after which it is paused.

    >>> from lapwing import dmm
    >>> player = Player(Session(dmm.duplicate_detector(), text="aab"))
    >>> player.step()
    >>> with player.held() as session:
    ...     session.cycle
    1
    """

    def __init__(self, session: Session, speed: float = SPEED):
        self._session = session
        self._changed = threading.Condition()
        self._playing = self._ended = False
        self._thread: threading.Thread | None = None
        self.trouble: str | None = None
        self.set_speed(speed)

    @property
    def is_playing(self) -> bool:
        return self._playing

    @property
    def speed(self) -> float:
        """Cycles per second, if they are that fast."""
        return self._speed

    @contextmanager
    def held(self) -> Iterator[Session]:
        """The session, between two cycles."""
        with self._changed:
            yield self._session

    def start(self) -> None:
        self._thread = threading.Thread(target=self._play, name="lapwing-live", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and the journal."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._session.close()

    def play(self) -> None:
        with self._changed:
            self._playing, self.trouble = True, None
            self._changed.notify_all()

    def pause(self) -> None:
        with self._changed:
            self._playing = False
            self._changed.notify_all()

    def step(self) -> None:
        """Runs one cycle, and pauses."""
        with self._changed:
            self._playing = False
            self._cycle()
            self._changed.notify_all()

    def set_speed(self, speed: float) -> None:
        if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0.1 <= speed <= FASTEST:
            raise LiveError(f"the speed is from 0.1 to {FASTEST:.0f} cycles a second, but got {speed!r:.80}")
        with self._changed:
            self._speed = float(speed)
            self._changed.notify_all()

    def apply(self, edit: Edit) -> None:
        """Makes an edit between two cycles."""
        with self._changed:
            self._session.apply(edit)
            self.trouble = None

    def _cycle(self) -> None:
        try:
            self._session.step()
            self.trouble = None
        except LapwingError as error:
            self._playing, self.trouble = False, str(error)

    def _play(self) -> None:
        due = 0.0
        while True:
            with self._changed:
                while not self._playing and not self._ended:
                    self._changed.wait()
                    due = time.monotonic()
                if self._ended:
                    return
                now, period = time.monotonic(), 1 / self._speed
                due = min(due, now + period)  # a higher speed than when it was set
                if due > now:
                    self._changed.wait(due - now)  # A pause or another speed ends it.
                    continue
                self._cycle()
                # Cycles that take longer than their time are not made up for.
                due = max(due + period, time.monotonic())
            time.sleep(0)  # Others get the lock.
