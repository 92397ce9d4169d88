"""The one exception that leaves this package, and the guard that makes it."""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.errors import UserError


class SparkInternalsError(UserError, RuntimeError):
    """A capability of Spark's private API that was not reached, and why."""

    def __init__(self, capability: str, reason: str) -> None:
        super().__init__(f"{capability}: {reason}")
        self.capability = capability
        self.reason = reason


@contextmanager
def reaching(capability: str) -> Iterator[None]:
    """Turn what fails beyond the gateway into ``SparkInternalsError``, with its cause.

    Py4J answers a missing class or method with TypeError or AttributeError, a dead gateway with OSError.
    """
    try:
        yield
    except SparkInternalsError:
        raise
    except (Py4JError, PySparkException, TypeError, AttributeError, OSError) as error:
        raise SparkInternalsError(capability, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    """Return the first telling line of *error*: Py4J puts a Java stack trace behind it."""
    try:
        lines = [line.strip(" :\t") for line in str(error).splitlines() if line.strip(" :\t")]
    except (Py4JError, OSError):  # the text itself is fetched through a gateway that may be gone
        lines = []
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    return lines[0] if lines else type(error).__name__
