"""`lapwing info`: versions, devices, extras and places, to paste into a report of a problem.

What is installed comes from the packages' metadata, the devices from a process of its own: so it answers where jax is
missing, broken, or waits for a device. Secrets are left out, as in a run folder, and the home folder is written `~`.
"""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import tyro

from lapwing import __version__
from lapwing.core import cache_folder, hide_in_text
from lapwing.journal import environment

from .output import print_json, print_lines, print_rich, table
from .parse import Flag, Json

# Other lines may be on standard output too: plugins print there.
_ANSWER = "devices of jax: "
_DEVICES = f"""
import json, jax
found = [dict(platform=d.platform, kind=d.device_kind, process=d.process_index) for d in jax.devices()]
print()
print({_ANSWER!r} + json.dumps(found))
"""
# Extras for those who work on Lapwing itself.
_FOR_DEVELOPERS = ("dev", "docs")

NoDevices = Annotated[Flag, tyro.conf.arg(help="do not ask jax, which takes a second or more")]
Timeout = Annotated[float, tyro.conf.arg(metavar="SECONDS", help="how long to wait for jax")]


def info(*, no_devices: NoDevices = False, timeout: Timeout = 60.0, as_json: Json = False) -> None:
    """Prints versions, devices, what is missing, and where files are: everything that a report of a problem needs."""
    found = _described() | ({} if no_devices else {"devices": _devices(timeout)})
    if as_json:
        print_json(found)
        return
    rows = [[name, found[name]] for name in ("lapwing", "python", "platform", "cores")]
    rows += [[name, _package_state(**each)] for name, each in found["packages"].items()]
    rows += [[name, version] for name, version in found["jax"].items()]
    rows += [[f"extra {name}", _state(missing)] for name, missing in found["extras"].items()]
    rows += [[f"variable {name}", text] for name, text in found["variables"].items()]
    rows += [[name, path] for name, path in found["places"].items()]
    print_rich(table(["what", "found"], rows))
    print_lines("", *_device_lines(found.get("devices")))


def _described() -> dict[str, Any]:
    here = environment()
    needed, extras = _requirements()
    return {
        "lapwing": __version__,
        **{name: here[name] for name in ("python", "platform", "cores")},
        "packages": {name: {"needs": needs, "version": _version(name)} for name, needs in needed.items()},
        "jax": _parts_of_jax(),
        "extras": {
            extra: [name for name, needs in names.items() if not _satisfies(_version(name), needs)]
            for extra, names in extras.items()
            if extra not in _FOR_DEVELOPERS
        },
        "versions": here["versions"],
        "variables": here["variables"],
        "places": _places(),
    }


def _requirements() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """What Lapwing needs, and what each extra needs, with the versions; nothing where it is not installed."""
    try:
        lines = metadata.requires("lapwing") or []
    except metadata.PackageNotFoundError:
        return {}, {}
    needed: dict[str, str] = {}
    extras: dict[str, dict[str, str]] = {}
    for line in lines:
        match = re.match(r"([\w.-]+)(?:\[.*?\])?([^;]*)(?:;.*extra == ['\"]([\w-]+)['\"])?", line)
        assert match, line
        name, needs, extra = match.groups()
        if extra:
            extras.setdefault(extra, {})[name] = needs.strip()
        else:
            needed[name] = needs.strip()
    return needed, extras


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _parts_of_jax() -> dict[str, str]:
    """The packages that jax brings, or finds: jaxlib, and plugins for devices."""
    named = {each.metadata["Name"] or "": each.version for each in metadata.distributions()}
    return {name: named[name] for name in sorted(named) if re.match(r"jaxlib$|jax[-_].*(plugin|pjrt)", name)}


def _satisfies(version: str | None, needs: str) -> bool:
    """Whether a version is installed, and is not older than what is needed.

    >>> _satisfies("5.1.2", ">=5.0"), _satisfies("4.10", ">=5.0"), _satisfies("2.0rc1", ">=2"), _satisfies(None, "")
    (True, False, True, False)
    """
    oldest = re.search(r">=\s*([\d.]+)", needs)
    return version is not None and (oldest is None or _numbers(version) >= _numbers(oldest[1]))


def _numbers(version: str) -> list[int]:
    """Its leading numbers, without zeros at the end: 2.0 is 2."""
    found = [int(part) for part in (re.match(r"[\d.]*", version) or [""])[0].split(".") if part]
    while found and not found[-1]:
        found.pop()
    return found


def _package_state(needs: str, version: str | None) -> str:
    if version is None:
        return f"missing, needs {needs}"
    return version if _satisfies(version, needs) else f"{version}, needs {needs}"


def _places() -> dict[str, str]:
    """Folders that Lapwing reads or writes."""
    named = {name: os.environ[name] for name in ("LAPWING_CACHE", "LAPWING_DATA") if os.environ.get(name)}
    places = {
        "package": Path(__file__).parents[1],
        "runs": Path.cwd() / "runs",
        "cache": cache_folder(),
        **named,
    }
    return {name: _without_home(str(path)) for name, path in places.items()}


def _without_home(text: str) -> str:
    home = str(Path.home())
    return hide_in_text(re.sub(rf"(?<![\w/]){re.escape(home)}(?=/|$)", "~", text) if len(home) > 1 else text)


def _devices(timeout: float) -> dict[str, Any]:
    """The devices of jax, or why there are none."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DEVICES],
            capture_output=True,
            text=True,
            timeout=timeout,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return {"error": f"jax has not answered within {timeout:g} s; another process may use the device"}
    answer = [line.removeprefix(_ANSWER) for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    if answer and not done.returncode:
        return {"found": json.loads(answer[-1])}
    return {
        "error": _without_home(_reason(done.stderr) or f"the process ended with status {done.returncode}")
    }


def _reason(stderr: str) -> str:
    """The last line of a traceback; with the line of code above it where that says nothing, as of an assertion."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip(" ^~\t")]
    return (
        " at ".join(reversed(lines[-2:]))
        if lines and re.fullmatch(r"\w+", lines[-1])
        else "".join(lines[-1:])
    )


def _state(missing: list[str]) -> str:
    return f"missing: {', '.join(missing)}" if missing else "complete"


def _device_lines(devices: dict[str, Any] | None) -> list[str]:
    if devices is None:
        return ["devices: not asked for"]
    if "error" in devices:
        return [f"devices: jax does not work here: {devices['error']}"]
    return [f"device: {each['kind']} ({each['platform']})" for each in devices["found"]]
