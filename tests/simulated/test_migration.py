"""The migration protocol under random faults: nothing lost, nothing twice, order kept."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtimes.simulated.migration import Migration, MigrationOptions

MESSAGES = 120


def migrated(
    seed: int, deaths: list[tuple[float, str]], *, slow: float = 0.02, **options: float
) -> Migration:
    chance = random.Random(seed)

    def delay() -> float:
        # Mostly quick, now and then very late: several periods of the stream.
        return chance.expovariate(1 / slow) if chance.random() < 0.3 else 0.001

    migration = Migration(MigrationOptions(**options), delay, messages=MESSAGES)
    migration.run(move_at_s=0.3, deaths=deaths)
    return migration


def check(migration: Migration) -> None:
    numbers = [number for number, _ in migration.saved.results]
    assert numbers == list(range(1, MESSAGES + 1)), "every message once, in order"
    assert [total for _, total in migration.saved.results] == [n * (n + 1) // 2 for n in numbers], (
        "on the same state"
    )
    assert migration.most_buffered <= migration.options.buffer_messages


def test_without_faults_the_steps_come_in_order_and_the_old_one_ends() -> None:
    migration = migrated(1, [])
    check(migration)
    assert migration.owner.node == "new"
    kinds = [step.split()[0] for step in migration.steps]
    assert kinds == ["deploy", "pause", "drain", "transfer", "end", "resume"]
    assert migration.pause_s > MigrationOptions().state_bytes / MigrationOptions().bandwidth_bps


def test_larger_states_pause_longer() -> None:
    small, large = migrated(2, [], state_bytes=1e4), migrated(2, [], state_bytes=1e8)
    assert large.pause_s - small.pause_s > 0.7
    check(large)


def test_a_full_buffer_stops_the_sender() -> None:
    migration = migrated(3, [], state_bytes=5e8, buffer_messages=5)
    check(migration)
    assert migration.most_buffered == 5


def test_a_target_that_dies_during_the_transfer_leaves_all_as_it_was() -> None:
    migration = migrated(4, [(0.6, "new")], state_bytes=1e8)
    check(migration)
    assert "transfer" in migration.steps
    assert migration.owner.node == "old"


def test_when_the_source_dies_during_the_transfer_another_begins_at_the_saved_state() -> None:
    migration = migrated(5, [(0.6, "old")], state_bytes=1e8)
    check(migration)
    assert migration.owner.node == "new"


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10_000),
    deaths=st.lists(
        st.tuples(st.floats(0.25, 1.6), st.sampled_from(["old", "new"])), max_size=2, unique_by=lambda d: d[1]
    ),
    slow=st.sampled_from([0.001, 0.02, 0.1]),
    state=st.sampled_from([1e4, 1e7, 1e8]),
    buffer=st.sampled_from([1, 10, 100]),
    every=st.integers(1, 20),
)
def test_nothing_lost_nothing_twice_order_kept(
    seed: int, deaths: list[tuple[float, str]], slow: float, state: float, buffer: int, every: int
) -> None:
    check(migrated(seed, deaths, slow=slow, state_bytes=state, buffer_messages=buffer, save_every=every))
