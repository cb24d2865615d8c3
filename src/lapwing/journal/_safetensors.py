"""Writing arrays by name, as safetensors or as numpy's npz.

Safetensors is a page of specification (https://huggingface.co/docs/safetensors), so no library is needed: a length, a
JSON header, and the bytes of the arrays, in this order.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lapwing.core import replace_file

if TYPE_CHECKING:
    import numpy as np

_DTYPES = {
    f"{name}{bits}": f"{name[0].upper()}{bits}" for name in ("uint", "int") for bits in (8, 16, 32, 64)
}
_DTYPES |= {"float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16", "complex64": "C64"}
_DTYPES |= {"bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}


class Layout(NamedTuple):
    """Where each array is: entries of the header, and the contents in their order."""

    tensors: dict[str, Any]
    contents: "dict[str, memoryview]"


def layout_of(arrays: "Mapping[str, np.ndarray]") -> Layout:
    """Arrays one after the other, large items first, so that each starts at a multiple of its item size.

    An array of a dtype that safetensors lacks (int4) is stored as its bytes, U8.

    >>> import numpy as np
    >>> layout_of({"a": np.zeros(3, np.int8), "b": np.zeros((1, 2), np.float32)}).tensors["a"]
    {'dtype': 'I8', 'shape': (3,), 'data_offsets': [8, 11]}
    """
    import numpy as np

    ordered = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))
    contents = {
        name: np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for name, array in ordered.items()
    }
    tensors, end = {}, 0
    for name, array in ordered.items():
        begin, end = end, end + len(contents[name])
        known = _DTYPES.get(str(array.dtype))
        dtype, shape = (known, array.shape) if known else ("U8", [end - begin])
        tensors[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    return Layout(tensors, contents)


def padded(header: bytes) -> bytes:
    """A header after which the arrays start at a multiple of 8."""
    return header + b" " * (-len(header) % 8)


def write_safetensors(path: Path, arrays: "Mapping[str, np.ndarray]", metadata: Mapping[str, str]) -> None:
    """Writes a file that any reader of safetensors takes, completely or not at all.

    >>> import tempfile
    >>> import numpy as np
    >>> file = Path(tempfile.mkdtemp()) / "weights.safetensors"
    >>> write_safetensors(file, {"w": np.ones(2)}, {"step": "10"})
    >>> b'"dtype": "F64"' in file.read_bytes()
    True
    """
    tensors, contents = layout_of(arrays)
    header = padded(json.dumps({"__metadata__": dict(metadata), **tensors}).encode())
    replace_file(path, [len(header).to_bytes(8, "little"), header, *contents.values()])


def write_npz(path: Path, arrays: "Mapping[str, np.ndarray]") -> None:
    """Writes a file for `numpy.load`, completely or not at all. What numpy alone cannot hold (bfloat16) is float32.

    >>> import tempfile
    >>> import numpy as np
    >>> file = Path(tempfile.mkdtemp()) / "weights.npz"
    >>> write_npz(file, {"w": np.ones(2)})
    >>> np.load(file)["w"]
    array([1., 1.])
    """
    import numpy as np

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:  # `numpy.savez` takes no array of the name `file`.
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                kept = array.astype(np.float32) if array.dtype.kind == "V" else array
                np.lib.format.write_array(member, np.ascontiguousarray(kept).reshape(array.shape))
    replace_file(path, [content.getbuffer()])
