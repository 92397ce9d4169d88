"""Only one holder, ever."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.control import Lease, SqliteJournal


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def two_controllers(path) -> tuple[Time, SqliteJournal, SqliteJournal]:
    time = Time()
    return time, SqliteJournal(path, unix_time=time), SqliteJournal(path, unix_time=time)


def test_the_second_waits_until_the_first_falls_silent(tmp_path) -> None:
    time, a, b = two_controllers(tmp_path / "journal.db")
    held = a.leases.acquire("flow", "a", for_s=10)
    assert held == Lease(name="flow", owner="a", expires_unix=1010.0, term=1)
    assert b.leases.acquire("flow", "b", for_s=10) is None
    time.now += 9
    held = a.leases.renew(held, for_s=10)
    assert held is not None
    assert held.expires_unix == 1019.0
    time.now += 9
    assert b.leases.acquire("flow", "b", for_s=10) is None
    time.now += 1
    taken = b.leases.acquire("flow", "b", for_s=10)
    assert taken is not None
    assert (taken.owner, taken.term) == ("b", 2)
    assert a.leases.renew(held, for_s=10) is None  # too late, and it learns so
    assert a.leases.holder("flow") == taken


def test_a_released_lease_is_free_at_once(tmp_path) -> None:
    _, a, b = two_controllers(tmp_path / "journal.db")
    held = a.leases.acquire("flow", "a", for_s=10)
    assert held is not None
    a.leases.release(held)
    assert a.leases.holder("flow") is None
    taken = b.leases.acquire("flow", "b", for_s=10)
    assert taken is not None
    a.leases.release(held)  # an old lease releases nothing
    assert b.leases.holder("flow") == taken


def test_a_lease_lasts_longer_than_nothing(tmp_path) -> None:
    _, a, _ = two_controllers(tmp_path / "journal.db")
    with pytest.raises(ValueError, match="longer than 0"):
        a.leases.acquire("flow", "a", for_s=0)


class Leasing(RuleBasedStateMachine):
    """Three owners in any order of steps: at most one of them believes, rightly, that it may act."""

    owners = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.journal = SqliteJournal(":memory:", unix_time=self.time)
        self.held: dict[str, Lease] = {}
        self.terms: list[int] = []

    @rule(owner=owners, for_s=st.sampled_from([1.0, 5.0]))
    def acquire(self, owner: str, for_s: float) -> None:
        lease = self.journal.leases.acquire("flow", owner, for_s=for_s)
        if lease is not None:
            self.held[owner] = lease
            self.terms.append(lease.term)

    @rule(owner=owners)
    def renew(self, owner: str) -> None:
        if owner in self.held:
            lease = self.journal.leases.renew(self.held.pop(owner), for_s=3)
            if lease is not None:
                self.held[owner] = lease

    @rule(owner=owners)
    def release(self, owner: str) -> None:
        if owner in self.held:
            self.journal.leases.release(self.held.pop(owner))

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.time.now += seconds

    @invariant()
    def at_most_one_may_act(self) -> None:
        valid = [lease.owner for lease in self.held.values() if lease.expires_unix > self.time.now]
        assert len(valid) <= 1
        holder = self.journal.leases.holder("flow")
        assert valid == ([] if holder is None else [holder.owner])

    @invariant()
    def terms_only_grow(self) -> None:
        assert self.terms == sorted(self.terms)

    def teardown(self) -> None:
        self.journal.close()


Leasing.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_leases = Leasing.TestCase
