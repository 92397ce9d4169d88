"""Heart beats in an ECG, sample by sample: Pan and Tompkins' detector as a state that is a value.

Pan, Tompkins: «A Real-Time QRS Detection Algorithm», IEEE Trans. Biomed. Eng. 32 (1985). Band-pass 5-15 Hz, derivative,
square, moving integration over 150 ms; then peaks, told from noise by two adaptive thresholds, with a refractory time
of 200 ms, a check for T waves within 360 ms and a search back when a beat is overdue.

Every result depends on the samples so far and on nothing else: however a stream is cut into pieces, the beats are the
same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import signal

from penstock.arrays import Floats

LOW_HZ, HIGH_HZ = 5.0, 15.0
INTEGRATION_S, REFRACTORY_S, T_WAVE_S, LEARNING_S = 0.150, 0.200, 0.360, 2.0
LOCATE_S = 0.225
"""How far before the integrated peak the beat's own peak is looked for: integration runs after it."""
OVERDUE = 1.66
"""Beats missing for so many mean intervals are searched for again, with half the threshold."""
RECENT = 8
"""Intervals whose mean is the usual one."""


@dataclass(frozen=True, slots=True)
class Detector:
    """All that a detector remembers; a tuple of plain numbers and tuples, so that any store can hold it."""

    seen: int = 0
    """Samples so far."""
    band: tuple[float, ...] = ()
    """State of the band-pass."""
    tail: tuple[float, ...] = ()
    """The last filtered samples, for the derivative and for where the beat was."""
    squares: tuple[float, ...] = ()
    """The last squared slopes, for the integration."""
    before: tuple[float, float] = (0.0, 0.0)
    """The last two integrated values."""
    learning: tuple[float, float] = (0.0, 0.0)
    """Highest peak and sum of peaks while learning."""
    signal: float = 0.0
    """Usual height of a beat's peak."""
    noise: float = 0.0
    last: int = -1
    """Where the last beat's integrated peak was."""
    slope: float = 0.0
    """Steepest slope of the last beat."""
    intervals: tuple[int, ...] = ()
    missed: tuple[int, float, int, float] = (-1, 0.0, -1, 0.0)
    """The highest peak since the last beat that was taken for noise: where, height, where its beat was, slope."""


def detect(detector: Detector, samples: Floats, rate_hz: float) -> tuple[list[int], Detector]:
    """(sample numbers of the beats that have become certain, the detector after the samples)."""
    if not len(samples):
        return [], detector
    if not np.isfinite(samples).all():
        raise ValueError("an ECG sample must be a finite number")
    form = _form(rate_hz)
    state = np.array(detector.band) if detector.band else signal.sosfilt_zi(form.band).ravel() * samples[0]
    filtered, band = signal.sosfilt(form.band, samples, zi=state.reshape(form.band.shape[0], 2))
    past = np.array(detector.tail) if detector.tail else np.zeros(form.kept)
    line = np.concatenate([past, filtered])
    # y(n) = (2x(n) + x(n-1) - x(n-3) - 2x(n-4))/8, the paper's derivative.
    own = slice(form.kept, len(line))
    slope = (
        2 * line[own] + line[own.start - 1 : -1] - line[own.start - 3 : -3] - 2 * line[own.start - 4 : -4]
    ) / 8
    squares = np.concatenate(
        [np.array(detector.squares) if detector.squares else np.zeros(form.window - 1), slope**2]
    )
    # Summed window by window, not by a running sum: its rounding would depend on where a piece began.
    windows = np.lib.stride_tricks.sliding_window_view(squares, form.window)
    integrated = windows.sum(axis=1) / form.window
    peaks = _Peaks(detector, form)
    a, b = detector.before
    for i, value in enumerate(integrated.tolist()):
        peaks.step(detector.seen + i, a, b, value, line, form.kept + i)
        a, b = b, value
    after = peaks.detector(
        seen=detector.seen + len(samples),
        band=tuple(band.ravel().tolist()),
        tail=tuple(line[-form.kept :].tolist()),
        squares=tuple(squares[-(form.window - 1) :].tolist()),
        before=(a, b),
    )
    return peaks.found, after


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Form:
    """What a sampling rate makes of the detector."""

    band: Floats
    window: int
    refractory: int
    t_wave: int
    learning: int
    locate: int
    kept: int
    """Filtered samples that are kept."""
    delay: int
    """Samples by which the band-pass lags behind, in the middle of the band."""


@cache
def _form(rate_hz: float) -> _Form:
    if not (math.isfinite(rate_hz) and rate_hz > 2.5 * HIGH_HZ):
        raise ValueError(f"a band-pass up to {HIGH_HZ:g} Hz needs more than {rate_hz:g} samples per second")
    locate = round(LOCATE_S * rate_hz)
    band = signal.butter(2, (LOW_HZ, HIGH_HZ), "bandpass", fs=rate_hz, output="sos")
    middle = math.sqrt(LOW_HZ * HIGH_HZ)
    _, lag = signal.group_delay(signal.sos2tf(band), [middle], fs=rate_hz)
    return _Form(
        band=band,
        delay=round(float(lag[0])),
        window=max(2, round(INTEGRATION_S * rate_hz)),
        refractory=round(REFRACTORY_S * rate_hz),
        t_wave=round(T_WAVE_S * rate_hz),
        learning=round(LEARNING_S * rate_hz),
        locate=locate,
        kept=max(locate + 2, 5),
    )


class _Peaks:
    """The decisions, one integrated value at a time."""

    def __init__(self, detector: Detector, form: _Form) -> None:
        self._form = form
        self._highest, self._sum = detector.learning
        self._signal, self._noise = detector.signal, detector.noise
        self._last, self._slope = detector.last, detector.slope
        self._intervals, self._missed = detector.intervals, detector.missed
        self.found: list[int] = []

    def detector(
        self,
        *,
        seen: int,
        band: tuple[float, ...],
        tail: tuple[float, ...],
        squares: tuple[float, ...],
        before: tuple[float, float],
    ) -> Detector:
        """What to remember."""
        return Detector(
            seen, band, tail, squares, before, (self._highest, self._sum), self._signal, self._noise,
            self._last, self._slope, self._intervals, self._missed,
        )  # fmt: skip

    def step(self, number: int, a: float, b: float, value: float, line: Floats, at: int) -> None:
        """Look at sample `number`, whose filtered value is `line[at]`; the one before it may be a peak."""
        form = self._form
        if number < form.learning:
            self._highest, self._sum = max(self._highest, value), self._sum + value
            if number == form.learning - 1:
                self._signal = self._highest / 3
                self._noise = self._sum / form.learning / 2
        self._search_back(number)
        if not (a <= b and b > value) or number < form.window:
            return
        peak, (where, slope) = number - 1, self._beat(number - 1, line, at - 1)
        # While learning, half of the highest so far is the best guess there is.
        threshold = (
            self._noise + 0.25 * (self._signal - self._noise)
            if number >= form.learning
            else self._highest / 2
        )
        since = peak - self._last if self._last >= 0 else form.t_wave + 1
        if since <= form.refractory:
            return
        t_wave = since <= form.t_wave and slope < self._slope / 2
        if b > threshold and not t_wave:
            self._accept(peak, b, where, slope, 0.125)
            return
        self._noise = 0.125 * b + 0.875 * self._noise
        if b > self._missed[1] and not t_wave:
            self._missed = (peak, b, where, slope)

    def _search_back(self, number: int) -> None:
        if len(self._intervals) < RECENT or self._missed[0] < 0:
            return
        usual = sum(self._intervals) / len(self._intervals)
        peak, height, where, slope = self._missed
        threshold = self._noise + 0.25 * (self._signal - self._noise)
        if number - self._last > OVERDUE * usual and height > threshold / 2:
            self._accept(peak, height, where, slope, 0.25)

    def _accept(self, peak: int, height: float, where: int, slope: float, weight: float) -> None:
        self._signal = weight * height + (1 - weight) * self._signal
        if self._last >= 0:
            self._intervals = (*self._intervals, peak - self._last)[-RECENT:]
        self._last, self._slope, self._missed = peak, slope, (-1, 0.0, -1, 0.0)
        self.found.append(where)

    def _beat(self, number: int, line: Floats, at: int) -> tuple[int, float]:
        """(where the filtered signal was farthest from 0 before an integrated peak, its steepest slope there)."""
        piece = line[max(at - self._form.locate, 0) : at + 1]
        back = len(piece) - 1 - int(np.argmax(np.abs(piece)))
        steepest = float(np.max(np.abs(np.diff(piece)))) if len(piece) > 1 else 0.0
        return max(number - back - self._form.delay, 0), steepest
