"""The registry of reasons: nothing is told that is not registered, and nothing is registered that is not told."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from penstock.control.record import Stage
from penstock.policies.reason_catalogue import CATALOGUE
from penstock.policies.reason_kind import ReasonKind
from penstock.policies.reasons import Reason, ReasonError, check_reasons, register, registered
from penstock.policies.wording import sentence, unit_of
from penstock_papers.reasons import REASONS

SOURCES = Path(__file__).resolve().parents[2] / "src"
TABLES = {SOURCES / "penstock/policies/reason_catalogue.py", SOURCES / "penstock_papers/reasons.py"}
TREES = {
    p: ast.parse(p.read_text(encoding="utf-8")) for p in sorted(SOURCES.rglob("*.py")) if p not in TABLES
}
FAULTS = {f"{stage}-failed" for stage in get_args(Stage)}
"""Codes that `Fault.code` puts together."""


@pytest.fixture
def production() -> Iterator[None]:
    check_reasons(False)
    yield
    check_reasons(True)


def literals(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)


def test_every_code_in_the_sources_is_registered() -> None:
    unknown = [
        f"{path.relative_to(SOURCES)}:{call.lineno}: {code}"
        for path, tree in TREES.items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Reason"
        for keyword in call.keywords
        if keyword.arg == "code"
        for code in literals(keyword.value)
        if code not in registered()
    ]
    assert not unknown


def test_every_registered_code_is_used() -> None:
    used = {
        node.value
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not {kind.code for kind in (*CATALOGUE, *REASONS)} - used - FAULTS


def test_codes_are_registered_once() -> None:
    codes = [kind.code for kind in (*CATALOGUE, *REASONS)]
    assert sorted(codes) == sorted(set(codes))
    with pytest.raises(ReasonError, match="registered already"):
        register(ReasonKind(code="worth-it", sentence="other", meaning="Other.", area="x"))


@pytest.mark.parametrize("kind", [*CATALOGUE, *REASONS], ids=lambda k: k.code)
def test_each_is_told_with_its_facts(kind: ReasonKind) -> None:
    text = sentence(
        Reason(code=kind.code, facts={name: 2.0 if unit_of(name) else "it" for name in kind.facts})
    )
    assert text
    assert "{" not in text
    assert text[0] in "SDP" or text[0] == text[0].lower(), "a clause, not a sentence"
    assert not text.endswith(".")
    assert kind.meaning.endswith(".")


def test_a_code_that_is_not_registered_fails() -> None:
    with pytest.raises(ReasonError, match="'moon-is-full' is not registered"):
        Reason(code="moon-is-full")


def test_a_missing_fact_fails() -> None:
    with pytest.raises(ReasonError, match="'cooling-down' lacks left_s"):
        Reason(code="cooling-down", facts={"since_s": 3})


@pytest.mark.usefixtures("production")
def test_in_production_both_are_told_plainly() -> None:
    assert sentence(Reason(code="moon-is-full")) == "moon is full"
    odd = Reason(code="cooling-down", facts={"since_s": 90, "own_share": 0.5})
    assert sentence(odd) == "cooling down (since 1.5 min, own share 50 %)"
