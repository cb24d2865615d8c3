"""The tests of other libraries, each once as written and once with `jax.lax.scan` replaced by `lw.scan`.

    python -m tests.peers                              every package that is installed with its tests
    python -m tests.peers jax=PATH haiku               these; PATH is a checkout of the release that is installed
    make test-peers JAX=PATH EQUINOX=PATH              the same; PEERS=PYTHON names the Python that has the packages

Nothing is fetched. A test that passes as written and fails replaced is a failure, unless `exceptions.txt` lists it with
the reason why no user can notice. Only tests that run a loop are run a second time.

Each outcome is written to a folder (`--folder`) as soon as it is known: after Ctrl-C the same command continues. What
was run as written is kept until the packages change; what was run replaced, until lapwing's loops change.
"""

import argparse
import collections
import contextlib
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
PACKAGES = ("dynamax", "equinox", "flax", "haiku", "jax", "jaxley")
MENTIONS = re.compile(r"\bscan\b|fori_loop|lax\.map\b")
Mode = Literal["plain", "auto", "always"]


@dataclasses.dataclass(frozen=True)
class Suite:
    """The tests of one package: where they are, and which files."""

    name: str
    root: Path
    files: list[Path]


def installed(files: list[str]) -> list[Suite]:
    """The suites of packages that are installed with their tests."""
    found = []
    for name in PACKAGES:
        with contextlib.suppress(SystemExit):
            found.append(suite_of(name, files))
    if not found:
        raise SystemExit("no package is installed with its tests; give a checkout of one, such as jax=PATH")
    return found


def suite_of(given: str, files: list[str]) -> Suite:
    """`name=PATH`, a checkout; or `name`, of a package that is installed with its tests."""
    name, _, path = given.partition("=")
    if path:
        root = Path(path).expanduser().resolve()
    else:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"{name} is not installed; give a checkout of its repository: {name}=PATH")
        root = Path(next(iter(spec.submodule_search_locations)))
    if not root.is_dir():
        raise SystemExit(f"{name}={path}: expected a folder, found none")
    root = root / "tests" if (root / "tests").is_dir() else root
    found = sorted({*root.rglob("test_*.py"), *root.rglob("*_test.py")})
    found = [file for file in found if not {"pallas", "multiprocess", "mosaic"} & {*file.parts}]
    if files:
        found = [file for file in found if file.name in files or file.stem in files]
    elif name == "jax":
        found = [file for file in found if MENTIONS.search(file.read_text())]
    if not found:
        raise SystemExit(f"{name}: no tests in {root}; give a checkout of its repository: {name}=PATH")
    return Suite(name, root, found)


@dataclasses.dataclass(frozen=True)
class Log:
    """The outcomes of one file in one mode, on disk; valid for one `key` (versions, lapwing's source)."""

    path: Path
    key: str
    each: int = 0
    """At most this many tests of each parametrised family; 0 is all."""

    def entries(self) -> list[dict]:
        if not self.path.exists():
            return []
        entries = [json.loads(line) for line in self.path.read_text().splitlines() if line.endswith("}")]
        return entries[1:] if entries and entries[0].get("key") == self.key else []

    def begin(self) -> None:
        if not self.entries():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps({"key": self.key}) + "\n")

    def add(self, **entry) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    @property
    def outcomes(self) -> dict[str, dict]:
        return {entry["test"]: entry for entry in self.entries() if "test" in entry}

    @property
    def complete(self) -> bool:
        return any("complete" in entry for entry in self.entries())

    def unfinished(self) -> str | None:
        """The test that was running when the process ended."""
        started = [entry["started"] for entry in self.entries() if "started" in entry]
        return started[-1] if started and started[-1] not in self.outcomes else None


def run_file(file: Path, log: Log, mode: Mode, only: list[str] | None, patience: float) -> None:
    """Run the tests of one file that have no outcome yet, and again after each crash."""
    log.begin()
    while not log.complete:
        done = log.outcomes
        collected = next((e["collected"] for e in log.entries() if "collected" in e), only)
        left = None if collected is None else [test for test in collected if test not in done]
        if left == []:
            break
        status = _pytest(file, log, mode, left, patience)
        stuck = log.unfinished()
        if stuck is not None:
            reason = "ran too long" if status is None else f"the process ended with status {status}"
            log.add(test=stuck, outcome="failed", loops=1, message=reason)
        elif len(log.outcomes) == len(done):
            break
    log.add(complete=True)


def _pytest(file: Path, log: Log, mode: Mode, only: list[str] | None, patience: float) -> int | None:
    """One pytest process; None where it was ended because no test finished for `patience` seconds."""
    env = os.environ | {"LAPWING_PEERS_LOG": str(log.path.resolve()), "LAPWING_PEERS_MODE": mode}
    env["PYTHONPATH"] = os.pathsep.join([str(SOURCE), str(HERE)])
    env.setdefault("JAX_PLATFORMS", "cpu")
    env["PYTHONSAFEPATH"] = "1"  # a file of the folder may have the name of a standard module
    env["LAPWING_PEERS_EACH"] = str(log.each)
    if only is not None:
        chosen = log.path.with_suffix(".only")
        chosen.write_text("\n".join(only))
        env["LAPWING_PEERS_ONLY"] = str(chosen.resolve())
    command = [sys.executable, "-m", "pytest", "-p", "replaced", "-p", "no:cacheprovider", "-q"]
    settings = log.path.with_name("pytest.ini")
    settings.write_text("[pytest]\n")
    command += ["-c", str(settings.resolve()), "--rootdir", str(file.parent), str(file)]
    with log.path.with_suffix(".out").open("a") as out:
        process = subprocess.Popen(command, env=env, cwd=file.parent, stdout=out, stderr=subprocess.STDOUT)
        try:
            return _watch(process, log, mode, file.name, patience)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def _watch(process: subprocess.Popen, log: Log, mode: Mode, name: str, patience: float) -> int | None:
    seen, since = -1, time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(1)
        size = log.path.stat().st_size
        if size != seen:
            seen, since = size, time.monotonic()
            if sys.stderr.isatty():
                print(f"\r{name} ({mode}): {len(log.outcomes)}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - since > patience:
            return None


def read_exceptions(path: Path = HERE / "exceptions.txt") -> dict[str, str]:
    """Test id -> the reason why no user can notice. A parametrised family is listed once, ending in `*`."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    pairs = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    if bare := [pair[0] for pair in pairs if len(pair) == 1]:
        raise SystemExit(f"{path.name}: each line is a test and a reason, but there is none for {bare[0]}")
    return dict(pairs)


def reason_for(test: str, exceptions: dict[str, str]) -> str | None:
    families = (why for name, why in exceptions.items() if name.endswith("*") and test.startswith(name[:-1]))
    return exceptions.get(test) or next(families, None)


def compare(suite: Suite, folder: Path, patience: float, each: int = 0, rewrite: Mode = "auto") -> list[dict]:
    """Run a suite both ways: the outcome of each test that passes as written."""
    rows = []
    for file in suite.files:
        name = str(file.relative_to(suite.root))
        stem = folder / suite.name / (name.replace(os.sep, "+").removesuffix(".py") + f"-{each}" * bool(each))
        plain = Log(stem.with_suffix(".plain.jsonl"), _versions(file), each)
        replaced = Log(stem.with_suffix(f".{rewrite}.jsonl"), _versions(file) + _lapwing())
        run_file(file, plain, "plain", None, patience)
        if not plain.outcomes:
            print(f"{suite.name}/{name}: no test ran; {plain.path.with_suffix('.out')} says why", flush=True)
            continue
        passing = [test for test, entry in plain.outcomes.items() if entry["outcome"] == "passed"]
        looping = [test for test in passing if plain.outcomes[test]["loops"]]
        if looping:
            run_file(file, replaced, rewrite, looping, patience)
        found = replaced.outcomes
        for test in passing:
            after = found.get(test, {"outcome": "missing" if test in looping else "passed"})
            rows.append(
                {
                    "test": f"{suite.name}/{name}::{test.partition('::')[2]}",
                    "loops": test in looping,
                    "outcome": after["outcome"],
                    "message": after.get("message", ""),
                }
            )
        bad = [row["test"] for row in rows if row["outcome"] != "passed" and f"/{name}::" in row["test"]]
        print(
            f"\r{suite.name}/{name}: {len(passing)} pass as written, {len(looping)} of them run a loop, ",
            end="",
        )
        print(f"{len(bad)} fail replaced", flush=True)
    return rows


def _versions(file: Path) -> str:
    version = importlib.metadata.version
    content = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    return f"jax {version('jax')} jaxlib {version('jaxlib')} {content}"


def _lapwing() -> str:
    files = sorted([*(SOURCE / "lapwing/loops").rglob("*.py"), *(SOURCE / "lapwing/jaxprs").rglob("*.py")])
    files.append(HERE / "replaced.py")
    return " " + hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def summary(rows: list[dict], exceptions: dict[str, str]) -> dict:
    """Counts by suite, and the failures that are not excepted."""
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    failures = []
    for row in rows:
        count = counts[row["test"].split("/")[0]]
        count["passed as written"] += 1
        count["with a loop"] += row["loops"]
        why = reason_for(row["test"], exceptions)
        if row["outcome"] == "passed":
            count["passed replaced"] += 1
        elif why:
            count["excepted"] += 1
        else:
            count["failed"] += 1
            failures.append(row)
    return {"suites": {name: dict(count) for name, count in counts.items()}, "failures": failures}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.peers", description="The tests of other libraries with lw.scan."
    )
    parser.add_argument("suites", nargs="*", metavar="NAME[=PATH]", help="a package, and a checkout of it")
    parser.add_argument("--files", nargs="+", default=[], metavar="FILE", help="only these files, by name")
    parser.add_argument(
        "--each", type=int, default=0, metavar="N", help="at most N tests of a parametrised family"
    )
    parser.add_argument(
        "--rewrite", choices=["auto", "always"], default="auto", help="of lw.scan; default auto"
    )
    parser.add_argument("--folder", type=Path, default=Path(".peers"), help="for outcomes; default .peers")
    parser.add_argument("--patience", type=float, default=900, help="seconds a test may take; default 900")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    given = parser.parse_args(argv)
    exceptions = read_exceptions()
    suites = [suite_of(each, given.files) for each in given.suites] or installed(given.files)
    with contextlib.redirect_stdout(sys.stderr):
        rows = [
            row
            for suite in suites
            for row in compare(suite, given.folder, given.patience, given.each, given.rewrite)
        ]
    found = summary(rows, exceptions)
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for name, count in found["suites"].items():
            print(f"{name}: " + ", ".join(f"{number} {what}" for what, number in count.items()))
        for row in found["failures"]:
            print(f"FAILED {row['test']}: {_last_line(row['message'])}")
    return 1 if found["failures"] else 0


def _last_line(message: str) -> str:
    """Of what pytest says about a failure: the error, which it marks with E."""
    errors = [line[1:].strip() for line in message.splitlines() if line.startswith("E ")]
    return (errors or message.strip().splitlines() or [""])[0]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nStopped; the same command continues.")
