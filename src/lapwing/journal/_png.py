"""PNG files from arrays, by the standard library: a signature and three chunks, the pixels compressed by zlib.

The format: https://www.w3.org/TR/png-3. Rows are written without a filter, which costs some size and no time.
"""

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # By channels: grey, RGB, RGB with alpha.


def png(pixels: "np.ndarray") -> bytes:
    """The content of a PNG file; `pixels` are uint8, of shape height × width × channels (1, 3 or 4).

    >>> import numpy as np
    >>> content = png(np.zeros((2, 3, 1), np.uint8))
    >>> content[1:4], int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    (b'PNG', 3, 2)
    """
    import numpy as np

    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # Each row begins with its filter, 0 for none.
    rows[:, 1:] = pixels.reshape(height, -1)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
