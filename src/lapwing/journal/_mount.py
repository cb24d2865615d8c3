"""Which file system a folder is on, as far as locks depend on it.

On a file system of one machine the kernel knows every process that has a file open. On one that machines share (NFS,
FUSE, SMB, Lustre) it may know only those of this machine, by version and mount options; what is not known to be local
counts as shared.
"""

import re
from pathlib import Path

_LOCAL = {
    "bcachefs",
    "btrfs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "jfs",
    "overlay",
    "ramfs",
    "tmpfs",
    "xfs",
    "zfs",
}
_MOUNTS = Path("/proc/self/mountinfo")


def is_on_one_machine(folder: Path) -> bool:
    """Whether only processes of this machine can write the folder under this path.

    >>> is_on_one_machine(Path("/proc"))
    False
    """
    try:
        table = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # Only Linux has it.
        return False
    return kind_of(folder.resolve(), table) in _LOCAL


def kind_of(path: Path, table: str) -> str:
    """The type of the file system that a path is on; `table` has the lines of /proc/self/mountinfo.

    >>> table = "27 1 254:0 / / rw - ext4 /dev/vda rw\\n28 27 0:9 / /my\\\\040home rw shared:1 - nfs4 host:/home rw\\n"
    >>> kind_of(Path("/my home/runs"), table), kind_of(Path("/my/runs"), table)
    ('nfs4', 'ext4')
    """
    found, longest = "", -1
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) < 5 or not after:
            continue
        mount = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4]))
        # Of two on the same place, the later one covers the other.
        if path.is_relative_to(mount) and len(mount.parts) >= longest:
            found, longest = after.split(" ")[0], len(mount.parts)
    return found
