"""Joins inside one trace: what the device executed, the runtime call that launched it, the operator around the call."""

import numpy as np

from charllm.arrays import Ints
from charllm.trace.events import NONE, OP, RANGE, RUNTIME, Codes, RankTrace

LARGEST_NUMBER = 2**62
"""Keys and rows together stay below this."""


def launching_calls(trace: RankTrace, rows: Ints) -> Ints:
    """Return the row of the runtime call that launched each event, by correlation; NONE where there is none."""
    calls = np.flatnonzero(trace.matches(RUNTIME) & (trace.events.correlation != NONE))
    return _latest_before(trace, calls, trace.events.correlation[calls], rows, trace.events.correlation[rows])


def operators_of(trace: RankTrace, calls: Ints) -> Ints:
    """Return the row of the operator that each runtime call belongs to, by external id; NONE where there is none."""
    ops = np.flatnonzero(trace.matches(OP, RANGE) & (trace.events.external_id != NONE))
    found = np.full(len(calls), NONE, dtype=np.int64)
    known = calls != NONE
    of = calls[known]
    ids = trace.events.external_id
    found[known] = _latest_before(trace, ops, ids[ops], of, ids[of])
    return found


def enclosing(trace: RankTrace, spans: Ints, calls: Ints) -> Ints:
    """Return the row of the last of some spans that began on the thread of a call before it and has not yet ended."""
    found = np.full(len(calls), NONE, dtype=np.int64)
    known = calls != NONE
    of, threads = calls[known], trace.events.thread.astype(np.int64)
    latest = _latest_before(trace, spans, threads[spans], of, threads[of])
    end_s = trace.events.end_s
    ended = (latest == NONE) | (end_s[latest] < trace.events.start_s[of])
    found[known] = np.where(ended, NONE, latest)
    return found


def enclosing_on_stream(trace: RankTrace, spans: Ints, rows: Ints) -> Ints:
    """Return the row of the last of some spans that began on the stream of an event before it and has not yet ended."""
    streams = trace.events.stream.astype(np.int64) * 2**15 + trace.events.device
    latest = _latest_before(trace, spans, streams[spans], rows, streams[rows])
    ended = (latest == NONE) | (trace.events.end_s[latest] <= trace.events.start_s[rows])
    return np.where(ended, NONE, latest)


def _latest_before(trace: RankTrace, rows: Ints, keys: Ints | Codes, of: Ints, wanted: Ints | Codes) -> Ints:
    """Return for each wanted key the last row with it that began no later; ids that come again are told apart so.

    Rows are in order of start, so that a key and a row in one number can be looked up at once.
    """
    start_s, size = trace.events.start_s, trace.events.size
    keys, wanted = keys.astype(np.int64), wanted.astype(np.int64)
    asked = wanted != NONE
    if size * (1 + int(keys.max(initial=0))) >= LARGEST_NUMBER:
        kinds, number = np.unique(keys, return_inverse=True)
        place = np.minimum(np.searchsorted(kinds, wanted), max(len(kinds) - 1, 0))
        # What no row has is looked up in vain.
        wanted = np.where(kinds[place] == wanted, place, NONE) if len(kinds) else wanted
        keys = number.reshape(-1)
    known = np.sort(keys * size + rows)
    until = np.searchsorted(start_s, start_s[of], side="right") - 1
    place = np.searchsorted(known, wanted * size + until, side="right") - 1
    found = known[np.maximum(place, 0)] if len(known) else np.zeros(len(of), np.int64)
    good = (place >= 0) & (found // max(size, 1) == wanted) & asked
    return np.where(good, found % max(size, 1), NONE)
