"""What a process says when the first of several has died.

JAX's coordination service lives in the first process. When that dies, the runtime of every other one logs some lines
and ends its process, from a thread of C++ that Python cannot answer. So the standard error of these processes passes
through a small process of its own (`python -m lapwing._commands.lost SENTENCE`), which holds those lines back and says
what happened and what to do.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator

_LOGGED = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ (\w+\.(?:cc|h)):\d+\] ")
_ABOUT_PEERS = {"client.h", "coordination_service.cc", "coordination_service_agent.cc"}
_MORE_OF_IT = ("Additional GRPC error", ":")
_FATAL = "Terminating process because the JAX distributed service detected fatal errors"


def replace_last_words(sentence: str) -> None:
    """From now on, if the runtime ends this process because of another one, `sentence` is all that is printed."""
    command = [sys.executable, "-m", "lapwing._commands.lost", sentence]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert child.stdin
    os.dup2(child.stdin.fileno(), sys.stderr.fileno())
    child.stdin.close()  # It ends with the last copy of this, which is standard error.
    child.returncode = 0  # Nobody waits for it.


def without_last_words(lines: Iterable[str], sentence: str) -> Iterator[str]:
    """The lines without those of the runtime about lost processes; the sentence follows if they were its last words.

    >>> fatal = f"F1116 06:48:43.849021   28282 client.h:80] {_FATAL}. This most likely indicates"
    >>> list(without_last_words(["mine", fatal, "Additional GRPC error information"], "the first one has ended"))
    ['mine', 'the first one has ended\\n']
    """
    is_held = is_lost = False
    for line in lines:
        if logged := _LOGGED.match(line):
            is_held = logged[1] in _ABOUT_PEERS
        elif not line.startswith(_MORE_OF_IT):
            is_held = False
        is_lost |= _FATAL in line
        if line.startswith(sentence[: sentence.find("(")]):  # This process itself was faster.
            is_lost, sentence = False, line
        if not is_held:
            yield line
    if is_lost:
        yield f"{sentence}\n"


def main() -> None:
    # A scheduler, or a terminal, signals this process too; it ends when the other one does.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for line in without_last_words(sys.stdin, sys.argv[1]):
        print(line, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
