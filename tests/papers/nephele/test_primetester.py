"""PrimeTester's own code: the numbers are repeatable and the primality test is right."""

from __future__ import annotations

from penstock_papers.nephele.primetester import is_probable_prime, primetester, random_numbers, with_primality


def sieve(limit: int) -> set[int]:
    found = set(range(2, limit))
    for n in range(2, int(limit**0.5) + 1):
        if n in found:
            found -= set(range(n * n, limit, n))
    return found


def test_agrees_with_a_sieve() -> None:
    assert {n for n in range(20_000) if is_probable_prime(n)} == sieve(20_000)


def test_carmichael_numbers_are_composite_and_mersenne_primes_are_prime() -> None:
    assert not any(is_probable_prime(n) for n in (561, 1105, 1729, 2465, 41041, 825265, 321197185))
    assert is_probable_prime(2**521 - 1)
    assert not is_probable_prime((2**521 - 1) * (2**127 - 1))


def test_rows_depend_on_their_number_alone() -> None:
    whole = random_numbers(0, 40).to_pylist()
    assert random_numbers(0, 13).to_pylist() + random_numbers(13, 40).to_pylist() == whole


def test_every_number_is_answered() -> None:
    tested = with_primality(random_numbers(0, 20)).to_pylist()
    assert [row["prime"] for row in tested] == [
        is_probable_prime(int.from_bytes(row["number"], "big")) for row in tested
    ]


def test_declares_the_papers_trial() -> None:
    load = primetester().operator("numbers").connector.load
    assert load is not None
    assert (load.rate_at(30.0), load.rate_at(90.0), load.peak_rps) == (10_000, 20_000, 60_000)
