"""The optimizing scan: a drop-in `jax.lax.scan` whose gradient is faster, and says why."""

from lapwing.loops._explain import Explanation as Explanation
from lapwing.loops._explain import explain as explain
from lapwing.loops._scan import accelerate as accelerate
from lapwing.loops._scan import scan as scan
