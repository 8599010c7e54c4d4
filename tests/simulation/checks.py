"""Compare the answers of a store with the answers of the model."""

import sqlite3
from contextlib import closing
from operator import attrgetter, methodcaller

import foldlog.eventstore as es
from foldlog._reports.audit_database import update
from foldlog._reports.figures.overview import overview_of
from foldlog.projections import audit
from tests.figures import FiguresOfStore, Prices, collect_stats, spent_by
from tests.simulation import model
from tests.simulation.conversion import model_fields, product_fields
from tests.simulation.world import NAMES, WORDS, Finding, Follower, count_figures


def check_equal(label, actual, expected, about=""):
    if actual != expected:
        raise Finding(label, f"{about}\n    actual   {actual!r}\n    expected {expected!r}")


def name_of(error):
    """Return the name of an error's public class. A recorder may raise a subclass."""
    return next(
        class_.__name__ for class_ in type(error).__mro__ if ".recorders." not in class_.__module__
    )


def error_of(call):
    """Return the name of the error with which the store refuses a call; None if it does not."""
    try:
        call()
    except es.EventStoreError as error:
        return name_of(error)
    return None


def check_view(process, name, *, tail=True):
    """Compare what an agent reads: the version, the last events, and the View."""
    site = process.site
    conversation = site.model.living.get(name)
    if conversation is None:
        refusal = model.refusal_of(lambda: site.model.version(name))
        actual = error_of(lambda: process.store.version(name))
        check_equal("version of a missing conversation", actual, refusal, name)
        if refusal is None:
            check_equal("version of a new name", process.store.version(name), 0, name)
        return
    history, former = process.reader(name)
    if former is not None:
        check_equal("View after erasure", error_of(former.view), "ConversationErased", name)
    if tail:
        version = process.store.version(name)
        check_equal("version", version, conversation.version, name)
        check_equal("tail", *_fields(history.tail(2), conversation.events[-2:]), name)
    view = history.view()
    check_equal("version of the View", view.version, conversation.version, name)
    _check_ids(view, conversation.view(), name)


def _fields(events, model_events):
    """Return both lists of events in the form in which they can be compared."""
    return (
        [product_fields(event) for event in events],
        [model_fields(event) for event in model_events],
    )


def _check_ids(view, expected, about):
    check_equal("View", [event.id for event in view], list(expected.ids), about)
    requested = view.unhandled_condensation_request
    check_equal("request", requested, expected.requested, about)


def check_rows(world, rows, events, label, about=""):
    """Compare stored rows with events of the model, and the times at which they were recorded."""
    check_equal(label, *_fields([row.event for row in rows], events), about)
    times = [world.microseconds(row.recorded_at) for row in rows]
    check_equal(f"{label}: times", times, [event["at"] for event in events], about)


def check_conversation(process, name, rng):
    """Compare all that can be read of one conversation."""
    check_view(process, name)
    site = process.site
    conversation = site.model.living.get(name)
    if conversation is None:
        error = error_of(lambda: list(process.store.events(name)))
        _check_refusal("events of a missing conversation", site, name, error)
        return
    history = process.histories[name]
    version = conversation.version
    check_rows(site.world, list(process.store.log(name)), conversation.events, "events", name)
    if rng.random() < 0.3:
        start, stop = sorted((rng.randrange(version + 1), rng.randrange(version + 1)))
        ids = [event.id for event in history.events(start, stop, reverse=True)]
        check_equal("events backwards", ids, list(range(start, stop))[::-1], name)
        error = error_of(lambda: history.at(version + 1))
        check_equal("no such version", error, "NoSuchVersion", name)
    for at in (version, rng.randrange(version + 1)):
        check_view_at(process, conversation, at, rng.choice(("openai", "anthropic")))
    for at in (None, rng.randrange(version + 1)):
        if rng.random() < 0.5:
            documents = model.typed(history.documents(at))
            expected = model.typed(conversation.documents(at))
            check_equal("documents", documents, expected, f"{name} at {at}")
    if rng.random() < 0.5:
        _check_why(process, conversation, rng)
    first = rng.randrange(version + 1)
    second = rng.randrange(version + 1)
    if first < second and rng.random() < 0.5:
        difference = history.difference(first, second)
        before = conversation.view(first).ids
        after = conversation.view(second).ids
        entered = [event.id for event in difference.entered]
        left = [event.id for event in difference.left]
        check_equal("entered", entered, [id_ for id_ in after if id_ not in before], name)
        check_equal("left", left, [id_ for id_ in before if id_ not in after], name)


def _check_refusal(label, site, name, error):
    """Compare the error with which the store refuses to read a conversation that it does not have."""
    check_equal(label, error, model.refusal_of(lambda: site.model.get(name)), name)


def check_view_at(process, conversation, version, dialect):
    history = process.histories[conversation.name]
    view = history.view() if version == conversation.version else history.at(version)
    expected = conversation.view(version)
    about = f"{conversation.name} at {version}"
    _check_ids(view, expected, about)
    check_equal("left behind", set(view.left_behind), set(expected.left_behind), about)
    check_equal(
        "content of the View",
        [_view_content(event) for event in view],
        [_content(conversation.item(item_id)) for item_id in expected.ids],
        about,
    )
    cut_points = conversation.cut_points(expected)
    check_equal("cut points", list(view.cut_points), cut_points, about)
    open_calls = [event.id for event in view.open_calls]
    check_equal("open calls", open_calls, conversation.open_calls(expected), about)
    tail = [event.id for event in view.tail(3)]
    check_equal("tail of the View", tail, list(expected.ids[-3:]), about)
    _check_messages(view, conversation, expected, f"{about}, {dialect}", dialect)


def _content(event):
    return event.get("content", event.get("arguments"))


def _view_content(event):
    if isinstance(event, es.CondensationSummary):
        return event.content
    return _content(product_fields(event))


def _check_messages(view, conversation, expected, about, dialect):
    items = [conversation.item(item_id) for item_id in conversation.sendable_ids(expected)]
    sent = model.in_message_order(items)
    words = made_words(view.to_messages(dialect))
    expected_words = made_words([_sent_content(event) for event in sent])
    check_equal("words of the messages", sorted(words), sorted(expected_words), about)
    # answers stand where their calls are: only the order of the other words is compared
    answers = [_sent_content(event) for event in sent if event["kind"] == "observation"]
    aside = set(made_words(answers))
    check_equal(
        "order of the messages",
        [word for word in words if word not in aside],
        [word for word in expected_words if word not in aside],
        about,
    )


def _sent_content(event):
    if event["kind"] == "action":
        return [event["thought"], event["arguments"]]
    return event.get("content")


def made_words(value):
    """Return the words within a value that the simulation has made. Each is in one event only."""
    return [word for word in split(value) if word.startswith("word")]


def split(value):
    """Return the words of all texts within a value."""
    match value:
        case str():
            return model.words_of(value)
        case dict():
            return split([*value.values()])
        case list() | tuple():
            return [word for member in value for word in split(member)]
    return []


def _check_why(process, conversation, rng):
    event_id = rng.randrange(conversation.version)
    why = process.histories[conversation.name].why(event_id)
    ids = conversation.view().ids
    position = ids.index(event_id) if event_id in ids else None
    fate = _fate(conversation, event_id)
    check_equal("why", (why.fate, why.position), (fate, position), conversation.name)


def _fate(conversation, event_id):
    """Return why the present View shows an event or not."""
    version = conversation.version
    if event_id in conversation.view().ids:
        return "shown"
    versions = range(event_id + 1, version + 1)
    if not any(event_id in conversation.view(shown_at).ids for shown_at in versions):
        return "never shown"
    # Go back through the versions that made the present View, to what removed the event.
    while True:
        newest = conversation.events[version - 1]
        if newest["kind"] == "retraction":
            version = min(newest["version"], version - 1)
            if version <= event_id:
                return "taken back"
        elif event_id in conversation.view(version - 1).ids:
            return "forgotten"
        else:
            version -= 1


def check_list(process):
    """Compare the list of conversations and their heads. An event has one head for ever, in every
    store.
    """
    site = process.site
    rows = list(process.store.iter_conversations())
    check_equal("ids in the list", [row.id for row in rows], site.model.names())
    for row in rows:
        conversation = site.model.living.get(row.id)
        tombs = site.model.tombs.get(row.id, [])
        generation = len(tombs) - (conversation is None)
        check_equal("generation", row.generation, generation, row.id)
        if conversation is None:
            tomb = tombs[-1]
            check_equal("erased", erasure_of(row), (tomb.version, tomb.erased_reason), row.id)
            continue
        stored = (row.version, row.erased_at, row.parent)
        parent = conversation.parent and conversation.parent.name
        check_equal("row", stored, (conversation.version, None, parent), row.id)
        head = site.world.heads.setdefault(conversation.events[-1]["tag"], row.head)
        check_equal("head", row.head, head, row.id)


def erasure_of(row):
    """Return the version and the reason of an erased conversation."""
    return row.version, (row.erased_reason or "").split(";")[0]


def check_recent(process, rng):
    site = process.site
    wanted = rng.choice([{}, {}, {"app": "x"}, {"app": "y"}, {"tags": ["t"]}, {"app": "x", "n": 1}])
    rows = []
    after = None
    while True:
        page = process.histories.list(wanted, limit=rng.choice((2, 100)), after=after, age_max_s=0)
        rows += page.conversations
        after = page.after
        if after is None:
            break
    expected = site.model.recent(wanted)
    times = [(site.world.microseconds(row.updated_at), row.id) for row in rows]
    check_equal("recent", sorted(times), sorted(expected), wanted)
    order = [at for at, _ in times]
    check_equal("order of recent", order, [at for at, _ in expected], wanted)
    for row in rows:
        attributes = site.model.living[row.id].documents().get("attributes", {})
        check_equal("attributes of recent", dict(row.attributes or {}), attributes, row.id)


def check_search(process, rng):
    site = process.site
    if rng.random() < 0.4:
        words = [rng.choice(WORDS)]
    else:
        words = [f"word{rng.randrange(1, site.world.words + 2):06d}q"]
    if rng.random() < 0.2:
        words.append(rng.choice(WORDS))
    within = rng.choice((None, None, rng.choice(NAMES)))
    if within is not None and within not in site.model.living:
        return
    if site.ring and process.store.database.settings.keys is None:
        return
    hits = process.histories.search(" ".join(words), conversation=within, limit=1000)
    ids = sorted((hit.conversation, hit.id) for hit in hits)
    check_equal("search", ids, sorted(site.model.search(words, within)), f"{words} in {within}")


def check_follow(process, *, anew=True):
    """Let the follower of this store read on, and compare what it has read; with ``anew``, compare
    also a follower that begins now.
    """
    site = process.site
    if site.follower.position > process.store.database.last_position:
        site.follower = Follower()
    site.follower = _read_on(process, site.follower)
    _check_follower("follow", site.follower, site.model)
    if anew:
        _check_follower("follow anew", _read_on(process, Follower()), site.model)


def _read_on(process, follower):
    """Read the positions after those that a follower has read; return the follower, a new one if
    the store was restored to a position before them.
    """
    start = follower.position
    for recorded in process.store.follow(start):
        if not recorded.position > follower.position:
            raise Finding("positions", f"{recorded.position} after {follower.position}")
        follower.position = recorded.position
        name = recorded.conversation
        match recorded.event:
            case es.Erased():
                follower.events.pop(name, None)
                follower.forks.pop(name, None)
            case es.Forked(parent=parent, version=version):
                follower.forks[name] = (parent, version)
            case es.Detached():
                # there is an entry for each conversation whose events the fork now stores
                follower.forks.pop(name, None)
            case es.StoreRestored(after=last_kept) if last_kept < start:
                return _read_on(process, Follower())
            case es.Redaction(event_ids=ids) | es.RedactionCopied(event_ids=ids):
                for event_id in set(ids) & follower.events.get(name, {}).keys():
                    position, _ = follower.events[name][event_id]
                    follower.events[name][event_id] = (position, None)
        if not isinstance(recorded.event, es.Entry):
            fields = product_fields(recorded.event)
            event = None if fields["redacted"] else fields
            follower.events.setdefault(name, {})[fields["id"]] = (follower.position, event)
    return follower


def _check_follower(label, follower, store):
    forks = {
        fork.name: (fork.parent.name, fork.own_from)
        for fork in store.living.values()
        if fork.parent
    }
    check_equal(f"{label}: forks", follower.forks, forks)
    expected = {
        name: {event["id"]: None if event["redacted"] else model_fields(event) for event in events}
        for name, events in store.own_events().items()
    }
    check_equal(f"{label}: conversations", sorted(follower.events), sorted(expected))
    for name, events in expected.items():
        read = follower.events[name]
        check_equal(label, {id_: event for id_, (_, event) in read.items()}, events, name)
        positions = [read[event_id][0] for event_id in sorted(read)]
        if not store.living[name].detached:
            check_equal(f"{label}: order", positions, sorted(positions), name)


def check_audit(process):
    for name in process.site.model.living:
        report = audit(process.store, name)
        check_equal("audit", (report.findings, report.missing), ((), 0), name)


def check_verify(process):
    unfinished = {name for name, _ in process.site.unfinished}
    if unfinished:
        unfinished.add(None)  # the verdict on the store itself
    present = {*process.site.model.names()}
    verdicts = [*process.histories.maintenance.verify()]
    # Another process may create a conversation whose place in the order has been passed.
    present.intersection_update(process.site.model.names())
    names = {verdict.conversation for verdict in verdicts}
    check_equal("conversations that were verified", names >= present, True)
    for verdict in verdicts:
        if verdict.conversation not in unfinished:
            findings = [str(finding) for finding in verdict.findings]
            check_equal("verify", findings, [], verdict.conversation)


def check_served(process, name, rng):
    """Compare what the server reads: a page of a conversation, its texts, the list with titles."""
    site = process.site
    conversation = site.model.living.get(name)
    if conversation is None:
        error = error_of(lambda: process.pages.history(name))
        _check_refusal("page of a missing conversation", site, name, error)
    else:
        _check_page(process, conversation, rng)
    if rng.random() < 0.9:
        return
    process.served.list()
    count_figures(process.served)
    rows = process.served.list().conversations
    versions = {row.conversation: row.version for row in rows}
    check_equal("served list", versions, versions_of(site.model))
    words = split([[row.title, row.attributes] for row in rows])
    check_equal("erased words in the served list", erased_words(site).intersection(words), set())


def versions_of(store):
    return {name: conversation.version for name, conversation in store.living.items()}


def _check_page(process, conversation, rng):
    name = conversation.name
    version = conversation.version
    since = rng.choice((0, rng.randrange(version + 1)))
    page = process.pages.history(name, since)
    check_equal("page", (page.version, page.since), (version, since), name)
    borders = []
    descendant = conversation
    while descendant.parent is not None:
        borders.insert(0, (descendant.parent.name, descendant.own_from))
        descendant = descendant.parent
    page_borders = [(border.parent, border.parent_version) for border in page.borders]
    check_equal("borders of the page", page_borders, borders, name)
    attributes = conversation.documents().get("attributes", {})
    check_equal("attributes of the page", page.attributes, attributes, name)
    views = [conversation.view(at).ids for at in range(version + 1)]
    left = [_left_at(views, event_id) for event_id in range(since, version)]
    check_equal("column left of the page", list(page.events.left), left, f"{name} since {since}")
    words = [set(made_words(event)) for event in conversation.events]
    event_id = rng.randrange(version)
    page_words = set(made_words(process.pages.event(name, event_id).event))
    check_equal("text of the page", page_words, words[event_id], f"{name} {event_id}")
    if words[event_id]:
        word = min(words[event_id])
        hits = [hit.event for hit in process.pages.find(name, word).hits]
        ids = [number for number, in_event in enumerate(words) if word in in_event]
        check_equal("find on the page", hits, ids, f"{name} {word}")


def _left_at(views, event_id):
    """Return the version at which an event left the View: 0 if it is still there, -1 if it never
    was.
    """
    is_shown = [event_id in ids for ids in views]
    if True not in is_shown:
        return -1
    first = is_shown.index(True)
    return is_shown.index(False, first) if False in is_shown[first:] else 0


def erased_words(site):
    """Return the words that were erased or redacted in a store, and that no event there has. An
    import that was stopped may have staged them.
    """
    events = [conversation.events for conversation in site.model.living.values()]
    return site.erased_words.difference(made_words(events), site.staged_words)


def check_audit_file(process):
    """Bring the audit file up to date; compare its events, and look for erased words in it."""
    site = process.site
    path = site.world.folder / f"{site.name}.audit"
    update(process.store, path)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT conversation, id, text FROM events").fetchall()
        conversations = connection.execute(
            "SELECT id, version FROM conversations WHERE erased_at IS NULL"
        ).fetchall()
    words = {(name, number): set(made_words(text)) for name, number, text in rows}
    expected = {
        (name, event["id"]): set(made_words(event))
        for name, events in site.model.own_events().items()
        for event in events
    }
    check_equal("events of the audit file", sorted(words), sorted(expected))
    for key in expected:
        check_equal("words of the audit file", words[key], expected[key], key)
    check_equal("conversations of the audit file", dict(conversations), versions_of(site.model))
    check_no_words("audit file", erased_words(site), path)


def check_no_words(label, words, path):
    data = path.read_bytes()
    for word in words:
        if word.encode() in data:
            raise Finding(label, f"{word} in {path.name}")


def check_figures(process):
    """Compare the stored figures with newly computed figures."""
    store = process.store
    views = process.histories.views
    living = [row for row in store.iter_conversations() if row.erased_at is None]
    for row, stored in FiguresOfStore(store).of(living):
        overview = overview_of(store, views, row)
        if row.id.startswith("log"):  # a line may be older than the event before it
            overview = overview._replace(last_event_at=stored.overview.last_event_at)
        check_equal("overview", stored.overview, overview, row.id)
        spent = process.histories[row.id].stats().document().spent
        check_equal("cost", spent_by(stored.calls, Prices()).cost, spent.cost, row.id)
    stored_stats = collect_stats(store, None, views=views).document()
    for row in living:
        key = store.query(row.id, attrgetter("key"))
        store.database.recorder.transact(methodcaller("forget_figures", key))
    check_equal("stats", stored_stats, collect_stats(store, None, views=views).document())


def check_everything(process, rng):
    for name in NAMES:
        check_conversation(process, name, rng)
    check_list(process)
    check_follow(process)
    check_search(process, rng)
    check_recent(process, rng)
    check_verify(process)


def check_derived(process, rng):
    """Compare what is derived from the events: audits, pages, the audit file, figures."""
    check_audit(process)
    check_served(process, rng.choice(NAMES), rng)
    check_audit_file(process)
    check_figures(process)
