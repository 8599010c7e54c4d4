"""Real histories: every version of every View, through the store, is the fold of the log up to
there.
"""

from foldlog import Histories
from foldlog.condensers.models.estimate import ESTIMATE
from foldlog.eventstore import CondensationAction, open_store
from foldlog.projections import View, Views, audit
from tests.imported import SHIPPED, imported
from tests.said import ids
from tests.shown_at import shown_at


def test_each_view_of_the_shipped_history_is_its_fold():
    (events,) = (list(history.events()) for history in imported(SHIPPED))
    assert any(isinstance(event, CondensationAction) for event in events)
    with open_store("memory:") as store:
        writer = Views(store)
        store.register(writer)
        store.ingest("c", iter(events))
        reader = Views(store)
        grown = View.from_events(())
        lives = Histories(store)["c"].lifetimes()
        for version in range(len(events) + 1):
            assert reader.at("c", version) == grown
            assert shown_at(lives, version) == ids(grown)
            grown = grown.then(events[version : version + 1])
        assert writer.current("c") == View.from_events(events)
        writer.rebuild("c")
        assert reader.current("c") == View.from_events(events)
        assert audit(store, "c").findings == ()
        prompt = ESTIMATE.token_sums(grown)[-1]
        # the tokens of events, and of their prompt
        assert 0.9 * prompt - 100 <= lives.sizes[-1] <= 1.15 * prompt + 100
