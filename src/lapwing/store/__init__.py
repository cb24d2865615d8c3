"""Runs past one disk: object storage such as S3, by fsspec (the extra `lapwing[cloud]`).

    push        a run folder, or a sweep, to a URL
    pull        from a URL to a runs folder, every byte checked
    uploading   while a run is trained
    Mirror      the small files of all runs of a store, for those who only read

`_manifest` says how a run is stored: objects that never change, and a manifest that is written last.
"""

from ._background import uploading
from ._download import Pulled, pull
from ._mirror import Mirror, following, list_runs
from ._remote import DamagedError, Store, StoreError, is_url
from ._run import ConflictError, Progress
from ._upload import check_upload, push

__all__ = [
    "ConflictError",
    "DamagedError",
    "Mirror",
    "Progress",
    "Pulled",
    "Store",
    "StoreError",
    "check_upload",
    "following",
    "is_url",
    "list_runs",
    "pull",
    "push",
    "uploading",
]
