from tests.board.conftest import browser

__all__ = ["browser"]  # The fixture.
