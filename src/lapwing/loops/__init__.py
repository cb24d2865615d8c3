"""The optimizing scan: a drop-in `jax.lax.scan` whose gradient is faster, and an account of what it does."""

from lapwing.loops._errors import LoopError as LoopError
from lapwing.loops._explain import Explanation as Explanation
from lapwing.loops._explain import explain as explain
from lapwing.loops._lowering import INSTALLED as _INSTALLED  # noqa: F401 - Puts our rule before that of jax.
from lapwing.loops._memory import Budget as Budget
from lapwing.loops._memory import LoopSizes as LoopSizes
from lapwing.loops._memory import MemoryPolicy as MemoryPolicy
from lapwing.loops._memory import Nested as Nested
from lapwing.loops._memory import Save as Save
from lapwing.loops._memory import Segments as Segments
from lapwing.loops._memory import Sqrt as Sqrt
from lapwing.loops._mode import use_persistent as use_persistent
from lapwing.loops._scan import accelerate as accelerate
from lapwing.loops._scan import as_written as as_written
from lapwing.loops._scan import scan as scan
from lapwing.loops._small import small_scan as small_scan

__all__ = [
    "Budget",
    "Explanation",
    "LoopError",
    "LoopSizes",
    "MemoryPolicy",
    "Nested",
    "Save",
    "Segments",
    "Sqrt",
    "accelerate",
    "as_written",
    "explain",
    "scan",
    "small_scan",
    "use_persistent",
]
