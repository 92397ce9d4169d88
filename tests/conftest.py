"""What all tests share."""

from pathlib import Path

import pytest
from hypothesis import settings

from penstock.policies.reason_kind import ReasonKind
from penstock.policies.reasons import check_reasons, register

REPOSITORY = Path(__file__).resolve().parents[1]

# How long an example takes says more about a shared machine than about the code.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

check_reasons()
register(ReasonKind(code="test", sentence="a test says so", meaning="For tests.", area="tests"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real traces and data sets beside the repository; the test is skipped where there is none."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no data in {folder}")
    return folder
