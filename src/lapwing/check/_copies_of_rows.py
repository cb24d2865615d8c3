"""Rows that are copies of others, and whether that can be by chance."""

import numpy as np

_COLUMNS, _VALUES = 4, 32
_IMAGE_COLUMNS = 16
_FEWEST = 64
_SINGLE = 0.2


def copies(rows: np.ndarray, of: np.ndarray) -> np.ndarray:
    """For each row the place of the first equal row in `of`, or −1.

    >>> copies(np.array([[1, 2], [5, 6]]), np.array([[3, 4], [1, 2]]))
    array([ 1, -1])
    """
    places: dict[bytes, int] = {}
    for place, row in enumerate(np.ascontiguousarray(of)):
        places.setdefault(row.tobytes(), place)
    same = np.ascontiguousarray(rows.astype(of.dtype))
    return np.array([places.get(row.tobytes(), -1) for row in same])


def is_measured(rows: np.ndarray) -> bool:
    """Whether equal rows can only be copies: many values in several columns, and rows that come once.

    Words and bits come again by chance, and so does everything where there are few different examples.

    >>> random = np.random.default_rng(0)
    >>> is_measured(random.normal(size=(100, 5))), is_measured(random.integers(0, 9, (100, 5)))
    (True, False)
    """
    is_image = rows.dtype == np.uint8
    if not is_image and rows.dtype.kind != "f":
        return False
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) < _FEWEST or np.mean(counts == 1) < _SINGLE:
        return False
    rich = sum(len(np.unique(column)) >= _VALUES for column in distinct.T)
    return rich >= (_IMAGE_COLUMNS if is_image else _COLUMNS)
