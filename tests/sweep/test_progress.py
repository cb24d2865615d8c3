import io

from lapwing.sweep._progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, **options) -> str:
    now = iter(range(0, 1000, 10))
    progress = Progress(3, stream=stream, clock=lambda: float(next(now)), **options)
    progress.begin()
    progress.begin()
    progress.end(failed=False)
    progress.end(failed=True)
    progress.close()
    return stream.getvalue()


def test_on_a_terminal_one_line_is_renewed_and_gone_at_the_end():
    lines = shown(Terminal()).split("\r\x1b[K")
    assert lines == [
        "",
        "0/3 done, 1 running",
        "0/3 done, 2 running",
        "1/3 done, 1 running, 20 s left",
        "2/3 done, 1 failed, 10 s left",
        "",
    ]


def test_elsewhere_and_when_quiet_there_is_nothing():
    assert shown(io.StringIO()) == ""
    assert shown(Terminal(), quiet=True) == ""


def test_what_was_done_before_does_not_make_it_look_faster():
    assert shown(Terminal(), done=1).split("\r\x1b[K")[-3:-1] == [
        "2/3 done, 1 running, 10 s left",
        "3/3 done, 1 failed",
    ]


def test_a_cluster_does_not_say_what_has_begun():
    progress = Progress(3, stream=io.StringIO(), clock=lambda: 0.0)
    progress.end(failed=False)
    assert str(progress).startswith("1/3 done, 0 s left")
