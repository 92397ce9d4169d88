"""The door for machine classes: a name of the catalogue, or a YAML file.

classes:
  - {name: small, cores: 2, price_per_hour: 0.10, billing: second, minimum_s: 60, startup_s: 45}
  - {name: big, cores: 16, speed: 1.1, price_per_hour: 0.80, billing: hour, available: 20}
  - {name: cheap, cores: 4, price_per_hour: 0.20, billing: second, spot: {discount: 0.6, interruptions_per_hour: 0.05}}
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.dataflow.errors import DataflowError
from penstock.dataflow.yaml_document import MAX_BYTES, read_document
from penstock.errors import InputError, did_you_mean
from penstock.policies.provisioning import CATALOGUE
from penstock.policies.provisioning.catalogue import PROVENANCE, spot
from penstock.telemetry import MachineClass

BILLING_S = {"hour": 3600.0, "second": 1.0}
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SpotPart(_Part):
    """Capacity that the provider may take back."""

    discount: Annotated[float, Field(ge=0, lt=1)]
    interruptions_per_hour: NotNegative = 0.0


class ClassPart(_Part):
    """A machine class as users write it."""

    name: Annotated[str, Field(min_length=1)]
    cores: Annotated[int, Field(ge=1, strict=True)]
    speed: Positive = 1.0
    price_per_hour: NotNegative
    billing: Literal["hour", "second"] = "hour"
    minimum_s: NotNegative = 0.0
    startup_s: NotNegative = 0.0
    memory_gb: Positive = 4.0
    bandwidth_mbps: Positive = 1000.0
    available: Annotated[int, Field(ge=0, strict=True)] | None = None
    spot: SpotPart | None = None

    def to_domain(self) -> MachineClass:
        """As policies know it."""
        machine = MachineClass(
            name=self.name,
            cores=self.cores,
            speed=self.speed,
            memory_bytes=self.memory_gb * 1e9,
            bandwidth_bytes_per_s=self.bandwidth_mbps * 1e6 / 8,
            price_per_hour=self.price_per_hour,
            billing_s=BILLING_S[self.billing],
            minimum_s=self.minimum_s,
            startup_s=self.startup_s,
            available=self.available,
        )
        if self.spot is None:
            return machine
        return spot(
            machine,
            discount=self.spot.discount,
            interruptions_per_hour=self.spot.interruptions_per_hour,
        )


class ClassesPart(_Part):
    """The whole file."""

    classes: Annotated[list[ClassPart], Field(min_length=1)]


def executor_class(name: str, classes: str, *, cores: int, available: int | None) -> MachineClass:
    """An executor of so many cores on a machine of the named class: it costs its share of the machine's cores."""
    known = {c.name: c for c in machine_classes(classes)}
    if name not in known:
        raise InputError(f"--machine {name}: no such class in '{classes}'{did_you_mean(name, known)}")
    machine = known[name]
    price = machine.price_per_hour * cores / machine.cores
    # Costs are measured on the very cores that run: these are the reference.
    return replace(machine, cores=cores, speed=1.0, price_per_hour=price, available=available)


def provenance(reference: str) -> str:
    """Where the prices and speeds of a set or a file are from."""
    return PROVENANCE.get(reference, f"as written in {reference}")


def machine_classes(reference: str) -> tuple[MachineClass, ...]:
    """The classes of a set in the catalogue, or of a file."""
    if reference in CATALOGUE:
        return CATALOGUE[reference]
    path = Path(reference)
    if path.suffix not in {".yaml", ".yml"} and not path.exists():
        raise InputError(
            f"--classes {reference}: neither a file nor a set of the catalogue"
            f"{did_you_mean(reference, CATALOGUE)}"
        )
    try:
        with open(path, "rb") as file:
            document = read_document(file.read(MAX_BYTES + 1)).data
    except OSError as problem:
        raise InputError(f"cannot read '{path}': {problem.strerror}") from problem
    except DataflowError as problem:
        raise DataflowError(problem.problems, origin=str(path)) from None
    try:
        classes = tuple(part.to_domain() for part in ClassesPart.model_validate(document).classes)
    except ValidationError as problem:
        told = [
            f"{path}: {'.'.join(str(p) for p in e['loc']) or 'file'}: {e['msg'].lower()}"
            for e in problem.errors()
        ]
        raise InputError("\n".join(told)) from None
    names = [c.name for c in classes]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise InputError(f"{path}: two machine classes are called '{twice}'")
    return classes
