"""The window operator as Flink's rules word it, in plain Python: dicts and sets, one record a time.

It runs the trigger, the evictor and the assigner of a program itself, and is the context that they
see. It knows nothing of chunks, folding, backends and namespaces. Where a job goes on with another
lateness than the one before, windows without a timer at their end get it, and windows whose end has
passed go; Flink would keep both for ever.
"""

from __future__ import annotations

from collections import defaultdict

from tests.window_driver import MAX, MIN

from weir.datastream.window import MergingWindowAssigner
from weir.keygroup import key_group
from weir.window.evictors import TimestampedValue


class Cell:
    """One value of a key and window: value state, or reducing state."""

    def __init__(self, cells, place, descriptor):
        self.cells, self.place, self.descriptor = cells, place, descriptor

    def get(self):
        return self.cells.get(self.place)

    value = get

    def update(self, value):
        self.cells[self.place] = value

    def add(self, value):
        held = self.get()
        self.update(value if held is None else self.descriptor.get_reduce_function()(held, value))

    def clear(self):
        self.cells.pop(self.place, None)


class PlainWindows:
    """Windows of keys; `results` are (key, bounds if it has them, sorted values) with stamps."""

    max_parallelism = 128

    def __init__(self, assigner, trigger, evictor=None, lateness=0, subtask_of=None):
        self.wm, self.now = MIN, 0
        self.subtask_of = subtask_of or (lambda key: 0)
        self.before_the_end, self.fired = MIN, {}
        self.contents = defaultdict(list)
        self.cells = {}
        self.in_flight = defaultdict(dict)
        self.event_timers, self.processing_timers = set(), set()
        self.results, self.late = [], []
        self.key = self.window = None
        self.merged = ()
        self.go_on_with(assigner, trigger, evictor, lateness)

    def go_on_with(self, assigner, trigger, evictor=None, lateness=0):
        """Be another program over the same state."""
        self.assigner, self.trigger, self.evictor = assigner, trigger, evictor
        self.lateness = lateness
        self.event_time = assigner.is_event_time()
        self.merging = isinstance(assigner, MergingWindowAssigner)

    @property
    def entries(self):
        held = [*self.contents.values(), *self.in_flight.values()]
        return len(self.cells) + sum(1 for part in held if part)

    @property
    def timers(self):
        return len(self.event_timers) + len(self.processing_timers)

    # ---- what triggers, evictors and assigners see

    def get_current_watermark(self):
        return self.wm

    def get_current_processing_time(self):
        return self.now

    def get_runtime_context(self):
        return self

    def key_group(self):
        return key_group(self.key, self.max_parallelism)

    def get_state(self, descriptor):
        return Cell(self.cells, (self.key, None, descriptor.name), descriptor)

    def get_partitioned_state(self, descriptor):
        return Cell(self.cells, (self.key, self.window, descriptor.name), descriptor)

    def merge_partitioned_state(self, descriptor):
        into = self.get_partitioned_state(descriptor)
        for window in self.merged:
            member = Cell(self.cells, (self.key, window, descriptor.name), descriptor)
            value = member.get()
            member.clear()
            if value is not None:
                into.add(value)

    def register_event_time_timer(self, time):
        self.event_timers.add((time, self.key, self.window))

    def register_processing_time_timer(self, time):
        self.processing_timers.add((time, self.key, self.window))

    def delete_event_time_timer(self, time):
        self.event_timers.discard((time, self.key, self.window))

    def delete_processing_time_timer(self, time):
        self.processing_timers.discard((time, self.key, self.window))

    # ---- records

    def cleanup(self, window):
        last = window.max_timestamp()
        return min(last + self.lateness, MAX) if self.event_time else last

    def is_late(self, window):
        return self.event_time and self.cleanup(window) <= self.wm

    def add(self, key, value, time):
        self.key, record, taken = key, (key, value), False
        for own in self.assigner.assign_windows(record, time, self):
            window = held_in = own
            if self.merging:
                known = own in self.in_flight[key]
                window = self.merge(own)
                if self.is_late(window):
                    if not known:
                        del self.in_flight[key][window]
                    continue
                held_in = self.in_flight[key][window]
            elif self.is_late(window):
                continue
            taken = True
            self.contents[key, held_in].append((value, time))
            self.window = window
            self.follow(self.trigger.on_element(record, time, window, self), held_in, time)
            self.set_cleanup()
        if not taken and self.event_time and time + self.lateness <= self.wm:
            self.late.append((record, time))

    def own_timers(self):
        return self.event_timers if self.event_time else self.processing_timers

    def set_cleanup(self):
        cleanup = self.cleanup(self.window)
        if cleanup != MAX:
            self.own_timers().add((cleanup, self.key, self.window))

    def merge(self, new):
        windows = self.in_flight[self.key]
        touching = sorted(w for w in windows if w.intersects(new) and not self.is_late(w))
        if new in windows or not touching:
            windows.setdefault(new, new)
            return new
        result = new
        for window in touching:
            result = result.cover(window)
        target, *sources = [windows.pop(window) for window in touching]
        windows[result] = target
        if touching != [result]:
            self.window, self.merged = result, touching
            self.trigger.on_merge(result, self)
            for self.window in touching:
                self.trigger.clear(self.window, self)
                self.own_timers().discard((self.cleanup(self.window), self.key, self.window))
            for source in sources:
                more = self.contents.pop((self.key, source), [])
                self.contents[self.key, target] += more
        return result

    def follow(self, result, held_in, stamp):
        if result.is_fire():
            self.emit(held_in, stamp)
        if result.is_purge():
            self.contents.pop((self.key, held_in), None)

    def emit(self, held_in, stamp):
        stored, window = self.contents.get((self.key, held_in)), self.window
        if not stored:
            return
        values = [value for value, _ in stored]
        if self.evictor is not None:
            found = [TimestampedValue((self.key, value), time) for value, time in stored]
            self.evictor.evict_before(found, len(found), window, self)
            values = [element.value[1] for element in found]
            self.evictor.evict_after(found, len(found), window, self)
            self.contents[self.key, held_in] = [(e.value[1], e.timestamp) for e in found]
        shown = (self.key, *bounds_of(window), tuple(sorted(values)))
        self.results.append((shown, self.stamp_of(window, stamp)))

    def stamp_of(self, window, fired):
        """Results of a window without an end are of the time that fired them.

        What the end of time fires comes behind all that the subtask gave, and is late for nobody.
        """
        if window.max_timestamp() != MAX:
            return window.max_timestamp()
        subtask = self.subtask_of(self.key)
        reached = self.fired.get(subtask, self.before_the_end)
        if fired == MAX:
            return reached + 1
        if self.wm == MAX:
            self.fired[subtask] = max(reached, fired)
        return fired

    # ---- time

    def watermark(self, time):
        self.before_the_end, self.wm = self.wm, time
        self.fire(self.event_timers, time, self.event_time)

    def clock(self, time):
        self.now = time
        self.fire(self.processing_timers, time, not self.event_time)

    def fire(self, timers, up_to, ends):
        """Fire timers; those of the assigner's own time end windows."""
        while due := [timer for timer in timers if timer[0] <= up_to]:
            timer = min(due, key=lambda each: (each[0], each[1], repr(each[2])))
            timers.discard(timer)
            time, self.key, self.window = timer
            held_in = self.window
            if self.merging:
                held_in = self.in_flight[self.key].get(self.window)
            if held_in is None:
                continue
            event = timers is self.event_timers
            decide = self.trigger.on_event_time if event else self.trigger.on_processing_time
            self.follow(decide(time, self.window, self), held_in, time)
            if ends:
                self.end(time, held_in)

    def end(self, time, held_in):
        cleanup, place = self.cleanup(self.window), (self.key, held_in)
        if time < cleanup:
            self.set_cleanup()
        elif time == cleanup or self.merging or self.contents.get(place):
            self.contents.pop(place, None)
            self.trigger.clear(self.window, self)
            if self.merging:
                del self.in_flight[self.key][self.window]


def bounds_of(window):
    return (window.start, window.end) if hasattr(window, "start") else ()
