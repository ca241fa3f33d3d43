"""Choice of the number of threads, with a clock and a machine made of numbers."""

from __future__ import annotations

import time

from volumetric.devices.cpu.thread_control import ThreadController
from volumetric.devices.cpu.thread_pool import ThreadPool


class Machine:
    """How long a call takes with so many threads; time passes as calls are made."""

    def __init__(self, limit: int) -> None:
        self.now = 0.0
        self.cost: dict[int, float] = {}
        self.governor = ThreadController(limit, clock=lambda: self.now)

    def run(self, calls: int) -> list[int]:
        used = []
        for _ in range(calls):
            used.append(self.governor.threads)
            took = self.cost[self.governor.threads]
            self.now += took
            self.governor.record_call(took)
        return used


def machine(**cost: float) -> Machine:
    made = Machine(2)
    made.cost = {int(key[1:]): value for key, value in cost.items()}
    return made


def test_quiet_machine_keeps_all_threads_but_for_one_early_trial():
    used = machine(n2=0.003, n1=0.005).run(500)
    assert used.count(1) <= 4
    assert set(used[20:]) == {2}


def test_a_start_beside_busy_neighbours_finds_one_thread():
    made = machine(n2=0.750, n1=0.007)
    used = made.run(1000)
    assert used[:2] == [2, 2]
    assert used[2:].count(2) < 20
    made.cost = {2: 0.003, 1: 0.005}
    made.run(2000)
    assert made.governor.threads == 2


def test_one_thread_while_a_neighbour_is_busy_and_two_again_after():
    made = machine(n2=0.003, n1=0.005)
    made.run(50)
    made.cost = {2: 0.100, 1: 0.005}
    used = made.run(2000)
    assert used.count(2) < 40
    assert used[-200:].count(1) >= 198
    made.cost = {2: 0.003, 1: 0.005}
    made.run(2000)
    assert made.governor.threads == 2


def test_slow_calls_that_fewer_threads_do_not_cure_change_nothing():
    made = machine(n2=0.003, n1=0.005)
    made.run(50)
    made.cost = {2: 0.006, 1: 0.011}
    used = made.run(2000)
    assert used.count(2) > 1800


def test_one_thread_is_never_less():
    made = Machine(1)
    made.cost = {1: 0.01}
    made.run(10)
    made.cost = {1: 1.0}
    assert set(made.run(50)) == {1}


def test_a_trial_does_not_slow_calls_of_another_kind():
    governor = ThreadController(2, clock=lambda: 0.0)
    while governor.threads == 2:
        governor.record_call(0.003, "few")
    assert governor.threads_for("few") == 1
    assert governor.threads_for("many") == 2
    for _ in range(8):
        governor.record_call(0.003, "many", prove=False)
    assert governor.threads_for("few") == 1
    for _ in range(4):
        governor.record_call(0.005, "few")
    assert governor.threads_for("few") == 2


PARTS = 12


class WatchedMachine(Machine):
    """Runs calls as the executable does: in parts, with glances, where the governor wants to look around.

    Attributes
    ----------
    lost : part of the time that one of so many threads is off its core
    burst : seconds that two threads lose besides when a call begins
    """

    lost: dict[int, float]
    burst = 0.0

    def call(self, kind="few"):
        governor, threads = self.governor, self.governor.threads
        burst = self.burst if threads > 1 else 0.0
        if not governor.is_uncertain(kind):
            self.now += self.cost[threads] + burst
            governor.record_call(self.cost[threads] + burst, kind)
            return
        seconds, lost, changed, before = burst, burst, False, 0
        self.now += burst
        for number in range(1, PARTS + 1):
            part = self.cost[governor.threads] / PARTS
            seconds += part
            self.now += part
            lost += self.lost[governor.threads] * part
            if governor.check_running_call(seconds, lost, kind, done=(number - before) / PARTS):
                seconds, lost, changed, before = 0.0, 0.0, True, number
        if not changed:
            governor.record_call(seconds, kind)


def watched(limit=2, *, cost, lost):
    made = WatchedMachine(limit)
    made.cost, made.lost = cost, lost
    return made


def test_the_first_call_beside_busy_neighbours_ends_with_one_thread():
    made = watched(cost={2: 0.750, 1: 0.014}, lost={2: 0.95, 1: 0.5})
    made.call()
    assert made.governor.threads == 1
    assert made.now < 0.750 / PARTS + 0.014


def test_a_second_try_with_all_threads_costs_a_part_of_a_call():
    made = watched(cost={2: 0.750, 1: 0.014}, lost={2: 0.95, 1: 0.5})
    spent = []
    for _ in range(1000):
        began = made.now
        made.call()
        spent.append(made.now - began)
    assert max(spent[1:]) < 0.750 / PARTS + 0.014
    assert sum(seconds > 0.02 for seconds in spent) < 12
    made.cost, made.lost = {2: 0.003, 1: 0.005}, {2: 0.1, 1: 0.0}
    for _ in range(3000):
        made.call()
    assert made.governor.threads == 2


def test_glances_leave_a_quiet_machine_alone():
    made = watched(cost={2: 0.200, 1: 0.350}, lost={2: 0.05, 1: 0.0})
    for _ in range(50):
        made.call()
    assert made.governor.threads == 2
    assert made.now < 50 * 0.200 + 4 * 0.150 + 0.001


def test_a_small_gain_keeps_many_threads():
    """A small network on many cores waits at barriers most of the time, and is still fastest with all of them."""
    made = watched(16, cost={16: 0.010, 8: 0.012, 4: 0.020}, lost={16: 0.05, 8: 0.0, 4: 0.0})
    used = []
    for _ in range(3000):
        used.append(made.governor.threads)
        made.call()
    assert used[-1000:].count(16) > 900


def test_what_a_server_does_when_a_call_begins_takes_no_thread_from_the_calls():
    """It costs one core some of the first milliseconds, all of which that thread then seems to have lost."""
    made = watched(cost={2: 0.013, 1: 0.021}, lost={2: 0.0, 1: 0.0})
    made.burst = 0.003
    for _ in range(500):
        made.call()
    assert made.now < 500 * 0.016 + 10 * 0.021
    made.lost, made.cost = {2: 0.5, 1: 0.0}, {2: 0.030, 1: 0.021}  # a neighbour all the time
    for _ in range(500):
        made.call()
    assert made.governor.threads == 1


def test_a_short_interruption_is_no_sign():
    governor = ThreadController(2)
    assert not governor.check_running_call(0.002, 0.002)
    assert governor.threads == 2


def test_a_disturbance_of_some_milliseconds_is_forgotten_as_soon():
    """The threads of another library spin on after its work: they are gone before this library's work is done."""
    made = watched(cost={2: 0.012, 1: 0.004}, lost={2: 0.6, 1: 0.0})
    made.call()
    assert made.governor.threads == 1
    made.cost, made.lost, end = {2: 0.002, 1: 0.004}, {2: 0.01, 1: 0.0}, made.now + 0.03
    while made.now < end:
        made.call()
    assert made.governor.threads == 2


def test_calls_that_gain_nothing_from_more_threads_do_not_keep_others_from_them():
    made = machine(n2=0.100, n1=0.005)
    made.run(20)
    assert made.governor.threads == 1
    made.cost = {2: 0.005, 1: 0.005}
    made.run(1000)
    assert made.governor.threads == 2


def test_a_trial_of_more_threads_passes_on_when_its_calls_stay_away():
    made = machine(n2=0.100, n1=0.005)
    while made.governor.threads_for("other") == 2 or made.governor.threads_for("") == 1:
        made.run(1)
    governor = made.governor
    for _ in range(100):
        governor.record_call({2: 0.002, 1: 0.004}[governor.threads_for("other")], "other")
    assert governor.threads_for("other") == governor.threads_for("") == 2


def test_threads_halve_until_nothing_is_lost():
    made = watched(8, cost={8: 2.0, 4: 1.5, 2: 0.02, 1: 0.03}, lost={8: 0.95, 4: 0.95, 2: 0.1, 1: 0.0})
    made.call()
    assert made.governor.threads == 2


def test_a_team_tells_the_processor_time_of_its_threads():
    team = ThreadPool()
    try:
        before = team.cpu_seconds(3)
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        after = team.cpu_seconds(3)
    finally:
        team.close()
    assert after[0] - before[0] >= 0.01
    if hasattr(time, "pthread_getcpuclockid"):
        assert len(before) == len(after) == 3
        assert all(now >= then for now, then in zip(after, before, strict=True))


def test_what_will_not_come_again_is_forgotten_with_its_trial():
    governor = ThreadController(4)
    for _ in range(8):
        governor.record_call(1.0, "a")
    assert governor.threads_for("a") == 2
    assert governor.threads_for("b") == 4
    governor.drop_kinds("a")
    assert governor.threads_for("a") == governor.threads_for("b") == 4
    for _ in range(8):
        governor.record_call(50.0, "a")  # nothing says that this is slow: it may be another program's
    assert governor.threads_for("a") == 2
