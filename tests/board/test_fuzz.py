"""A slice of the fuzzer, which has many more requests: `python -m tests.board.fuzz`."""

from pathlib import Path

import pytest

from tests.slow import some

from .fuzz import TOKENS, fuzz, make_runs


@pytest.mark.parametrize("tokens", some([None, TOKENS], 1))
def test_no_request_is_answered_by_a_500(tmp_path: Path, tokens, caplog):
    found = fuzz(tmp_path, make_runs(tmp_path), range(150) if tokens else range(150, 300), tokens)
    assert {"200", "400", "404", "405"} <= set(found)
    assert not caplog.records
