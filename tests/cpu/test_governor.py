"""Choice of the number of threads, with a clock and a machine made of numbers."""

from __future__ import annotations

from volumetric.runtime.cpu.governor import Governor


class Machine:
    """How long a call takes with so many threads; time passes as calls are made."""

    def __init__(self, limit: int) -> None:
        self.now = 0.0
        self.cost: dict[int, float] = {}
        self.governor = Governor(limit, clock=lambda: self.now)

    def run(self, calls: int) -> list[int]:
        used = []
        for _ in range(calls):
            used.append(self.governor.threads)
            took = self.cost[self.governor.threads]
            self.now += took
            self.governor.observe(took)
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
    governor = Governor(2, clock=lambda: 0.0)
    while governor.threads == 2:
        governor.observe(0.003, "few")
    assert governor.threads_for("few") == 1
    assert governor.threads_for("many") == 2
    for _ in range(8):
        governor.observe(0.003, "many", prove=False)
    assert governor.threads_for("few") == 1
    for _ in range(4):
        governor.observe(0.005, "few")
    assert governor.threads_for("few") == 2
