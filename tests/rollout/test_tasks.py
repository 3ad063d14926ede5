"""The task stream serves every task once an epoch, in an order that survives a kill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.rollout.tasks import TaskStream


def tasks(start, stop):
    return [str(number) for number in range(start, stop)]


def test_an_epoch_serves_every_task_once():
    stream = TaskStream(tasks(10, 60), seed=3)
    assert sorted(stream.take(50)) == tasks(10, 60)
    assert sorted(stream.take(50)) == tasks(10, 60)


def test_the_order_depends_on_the_numbers_not_on_how_they_are_written():
    assert TaskStream(sorted(tasks(0, 120)), 3).take(120) == TaskStream(tasks(0, 120), 3).take(120)
    assert TaskStream(tasks(0, 20), 3).take(6) == ["7", "6", "12", "9", "8", "2"]


def test_epochs_and_seeds_differ():
    first, second = TaskStream(tasks(0, 50), 3), TaskStream(tasks(0, 50), 4)
    orders = [first.take(50), first.take(50), second.take(50)]
    assert len({tuple(order) for order in orders}) == 3


@given(st.integers(0, 120), st.integers(0, 120))
def test_a_restored_stream_goes_on_where_it_stood(before, after):
    whole = TaskStream(tasks(0, 40), 1)
    expected = whole.take(before + after)[before:]
    stopped = TaskStream(tasks(0, 40), 1)
    stopped.take(before)
    again = TaskStream(tasks(0, 40), 1)
    again.restore(stopped.state())
    assert again.take(after) == expected


def test_tasks_handed_back_are_served_next_in_their_order():
    stream = TaskStream(tasks(0, 40), 1)
    taken = stream.take(8)
    stream.give_back(taken[5:])
    assert stream.take(4)[:3] == taken[5:]


def test_an_empty_split_is_refused():
    with pytest.raises(ValueError, match="at least one task"):
        TaskStream([], 0)
