"""Arrival forecasts for many series at once: pure functions over a state that is a value.

>>> import numpy as np
>>> options = ForecastOptions()
>>> state = start(2, options)
>>> for step in range(60):
...     state = update(state, np.array([100.0, 10.0 + step]), options)
>>> forecast(state, 5, options).mean[:, -1].round(1).tolist()
[100.0, 74.0]
"""

from penstock.forecast.options import ForecastOptions
from penstock.forecast.outlook import forecast
from penstock.forecast.state import ForecastState, Model, select, start
from penstock.forecast.update import update

__all__ = [
    "ForecastOptions",
    "ForecastState",
    "Model",
    "forecast",
    "select",
    "start",
    "update",
]
