from dataclasses import asdict

from hypothesis import given, settings
from hypothesis import strategies as st

from nagphormer.training.stopping import EarlyStopping


def after(patience, *epochs):
    stopping = EarlyStopping(patience)
    for number, (metric, loss) in enumerate(epochs, start=1):
        stopping.update(number, metric, loss)
    return stopping


def kept(*epochs):
    stopping = EarlyStopping(99)
    return [stopping.update(number, *epoch) for number, epoch in enumerate(epochs, start=1)]


def test_the_first_epoch_is_the_best_so_far_even_at_zero():
    stopping = EarlyStopping(1)
    assert stopping.update(1, 0.0, 1e30)
    assert (stopping.best_epoch, stopping.best_metric, stopping.best_loss) == (1, 0, 1e30)


def test_a_better_metric_wins_over_a_lower_loss():
    assert kept((0.5, 1.0), (0.6, 3.0), (0.5, 0.1)) == [True, True, False]


def test_ties_go_to_the_lower_loss_and_else_to_the_earlier_epoch():
    assert kept((0.5, 1.0), (0.5, 0.9), (0.5, 0.9), (0.5, 0.95)) == [True, True, False, False]


def test_ties_are_judged_by_the_loss_at_the_best_epoch_not_by_the_lowest():
    stopping = after(99, (0.5, 1.0), (0.4, 0.2), (0.5, 0.8))
    assert (stopping.best_epoch, stopping.best_loss, stopping.lowest_loss) == (3, 0.8, 0.2)


def test_an_equal_metric_or_loss_restarts_patience_only_where_asked_for():
    epochs = (0.5, 1.0), (0.5, 1.5), (0.4, 1.0), (0.4, 1.5)
    for asked, idle in ((False, 3), (True, 1)):
        stopping = EarlyStopping(9, restart_on_ties=asked)
        for number, epoch in enumerate(epochs, start=1):
            stopping.update(number, *epoch)
        assert (stopping.idle, stopping.best_epoch) == (idle, 1)


def test_patience_counts_epochs_without_a_better_metric_or_loss():
    idle = [(0.5, 1.0), (0.5, 1.0), (0.4, 1.1)]
    assert not after(3, *idle).done
    assert after(2, *idle).done
    assert after(2, *idle).idle == 2


def test_a_lower_loss_alone_restarts_patience_but_is_not_kept():
    stopping = after(2, (0.5, 1.0), (0.4, 1.1), (0.4, 0.9))
    assert (stopping.idle, stopping.done, stopping.best_epoch) == (0, False, 1)


def test_a_better_metric_alone_restarts_patience():
    stopping = after(2, (0.5, 1.0), (0.4, 1.1), (0.6, 2.0))
    assert (stopping.idle, stopping.done, stopping.best_epoch) == (0, False, 3)


def test_the_best_epoch_outlasts_patience():
    stopping = after(3, (0.5, 1.0), (0.9, 0.5), *[(0.1, 2.0)] * 3)
    assert stopping.done
    assert (stopping.best_epoch, stopping.best_metric, stopping.best_loss) == (2, 0.9, 0.5)


def test_nothing_is_done_before_the_first_epoch():
    assert not EarlyStopping(1).done


epoch = st.tuples(st.sampled_from([0.0, 0.5, 0.75, 1.0]), st.sampled_from([0.25, 0.5, 1.0, 2.0]))


@settings(deadline=None)
@given(st.lists(epoch, min_size=1, max_size=20))
def test_the_best_is_the_first_of_the_highest_metric_with_the_lowest_loss(epochs):
    stopping = after(5, *epochs)
    best = min(epochs, key=lambda e: (-e[0], e[1]))
    assert (stopping.best_metric, stopping.best_loss) == best
    assert stopping.best_epoch == epochs.index(best) + 1


@settings(deadline=None)
@given(st.lists(epoch, max_size=10), st.lists(epoch, max_size=10))
def test_resumed_equals_uninterrupted(first, second):
    resumed = EarlyStopping(**asdict(after(5, *first)))
    for number, values in enumerate(second, start=len(first) + 1):
        resumed.update(number, *values)
    assert resumed == after(5, *first, *second)


def test_a_loss_below_the_best_epochs_but_not_the_lowest_is_idle():
    stopping = EarlyStopping(patience=9)
    for epoch, (metric, loss) in enumerate([(0.5, 1.0), (0.9, 3.0), (0.6, 2.0)], start=1):
        stopping.update(epoch, metric, loss)
    assert (stopping.best_epoch, stopping.idle) == (2, 1)
