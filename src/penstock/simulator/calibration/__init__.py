"""From a run that happened to a model of its engine: read a history, fit the micro-batch simulator to it."""

from penstock.simulator.calibration.fit import Assumption, Calibration, calibrate
from penstock.simulator.calibration.history import (
    ExecutorLife,
    History,
    HistoryError,
    QueryHistory,
    StageHistory,
)

__all__ = [
    "Assumption",
    "Calibration",
    "ExecutorLife",
    "History",
    "HistoryError",
    "QueryHistory",
    "StageHistory",
    "calibrate",
]
