"""What a store answers, against what the model says."""

import sqlite3
from contextlib import closing
from operator import attrgetter, methodcaller

import foldlog.eventstore as es
from foldlog._figures.overview import overview_of
from foldlog._figures.prices import Prices
from foldlog._figures.shown import collect_stats
from foldlog._figures.spending import spent_by
from foldlog._figures.stored import FiguresOfStore
from foldlog._reports.audit_database import update
from foldlog.projections.audit import audit
from tests.simulation import model
from tests.simulation.plain import expected, said
from tests.simulation.world import NAMES, WORDS, Finding, figures


def same(label, got, want, about=""):
    if got != want:
        raise Finding(label, f"{about}\n    got      {got!r}\n    expected {want!r}")


def name_of(error):
    """Return the name of an error's class; of an error of a recorder, that of what it is for a
    caller.
    """
    return next(
        each.__name__ for each in type(error).__mro__ if ".recorders." not in each.__module__
    )


def error_of(call):
    try:
        call()
    except es.EventStoreError as error:
        return name_of(error)
    return None


def quick(process, name, *, tail=True):
    """What an agent asks: the version, the end of the log, and the View."""
    site = process.site
    found = site.model.living.get(name)
    if found is None:
        erased = bool(site.model.tombs.get(name))
        got = error_of(lambda: process.store.version(name))
        same("version of one that is gone", got, "ConversationErased" if erased else None, name)
        if not erased:
            same("version of one that never was", process.store.version(name), 0, name)
        return
    history, former = process.history(name)
    if former is not None:
        same("View of an erased one", error_of(former.view), "ConversationErased", name)
    if tail:
        same("version", process.store.version(name), found.version, name)
        same(
            "tail",
            [said(event) for event in history.tail(2)],
            [expected(each) for each in found.events[-2:]],
            name,
        )
    view, shown = history.view(), found.shown()
    same("version of the View", view.version, found.version, name)
    same("View", [event.id for event in view], list(shown.ids), name)
    same("request", view.unhandled_condensation_request, shown.requested, name)


def whole(process, name, rng):
    """All that can be asked of one conversation."""
    quick(process, name)
    site = process.site
    found = site.model.living.get(name)
    if found is None:
        want = "ConversationErased" if site.model.tombs.get(name) else "ConversationNotFound"
        same(
            "events of one that is gone",
            error_of(lambda: list(process.store.events(name))),
            want,
            name,
        )
        return
    history, now = process.histories[name], found.version
    logged = list(process.store.log(name))
    same(
        "events",
        [said(each.event) for each in logged],
        [expected(each) for each in found.events],
        name,
    )
    same(
        "times",
        [site.world.at_of(each.recorded_at) for each in logged],
        [each["at"] for each in found.events],
        name,
    )
    if rng.random() < 0.3:
        start, stop = sorted((rng.randrange(now + 1), rng.randrange(now + 1)))
        got = [event.id for event in history.events(start, stop, reverse=True)]
        same("events backwards", got, list(range(start, stop))[::-1], name)
        same(
            "no such version",
            error_of(lambda: history.at(now + 1)) or "NoSuchVersion",
            "NoSuchVersion",
            name,
        )
    for version in (now, rng.randrange(now + 1)):
        view_at(process, found, version, rng.choice(("openai", "anthropic")))
    for version in (None, rng.randrange(now + 1)):
        if rng.random() < 0.5:
            got, want = history.documents(version), found.documents(version)
            same("documents", model.typed(got), model.typed(want), f"{name} at {version}")
    if rng.random() < 0.5:
        _why(process, found, rng)
    one, other = rng.randrange(now + 1), rng.randrange(now + 1)
    if one < other and rng.random() < 0.5:
        difference = history.difference(one, other)
        before, after = found.shown(one).ids, found.shown(other).ids
        same(
            "entered",
            [e.id for e in difference.entered],
            [e for e in after if e not in before],
            name,
        )
        same("left", [e.id for e in difference.left], [e for e in before if e not in after], name)


def view_at(process, found, version, dialect):
    history = process.histories[found.name]
    view = history.view() if version == found.version else history.at(version)
    shown = found.shown(version)
    about = f"{found.name} at {version}"
    same("View", [event.id for event in view], list(shown.ids), about)
    same("request", view.unhandled_condensation_request, shown.requested, about)
    same("left behind", set(view.left_behind), set(shown.left), about)
    same(
        "View's words",
        [_view_words(event) for event in view],
        [_words(found.item(e)) for e in shown.ids],
        about,
    )
    same("cut points", list(view.cut_points), found.cut_points(shown), about)
    same("open calls", [event.id for event in view.open_calls], found.open_calls(shown), about)
    count = 3
    same("View's tail", [event.id for event in view.tail(count)], list(shown.ids[-count:]), about)
    _messages(view, found, shown, f"{about}, {dialect}", dialect)


def _words(event):
    return event.get("content", event.get("arguments"))


def _view_words(event):
    if isinstance(event, es.CondensationSummary):
        return event.content
    return _words(said(event))


def _messages(view, found, shown, about, dialect):
    fit = model.as_sent([found.item(each) for each in found.fit(shown)])
    told = tokens(view.to_messages(dialect))
    words = [tokens(_sent(each)) for each in fit]
    same(
        "words of the messages",
        sorted(told),
        sorted(word for each in words for word in each),
        about,
    )
    answers = {
        word
        for each, some in zip(fit, words, strict=True)
        for word in some
        if each["kind"] == "observation"
    }
    in_order = [word for each in words for word in each if word not in answers]
    same("order of the messages", [word for word in told if word not in answers], in_order, about)


def _sent(event):
    if event["kind"] == "action":
        return [event["thought"], event["arguments"]]
    return event.get("content")


def tokens(value):
    """Return the words within a value that the simulation has made: each is in one event."""
    return [word for word in split(value) if word.startswith("word")]


def split(value):
    """Return the words of all texts within a value."""
    match value:
        case str():
            return model.words_of(value)
        case dict():
            return [word for each in value.values() for word in split(each)]
        case list() | tuple():
            return [word for each in value for word in split(each)]
    return []


def _why(process, found, rng):
    event_id = rng.randrange(found.version)
    why = process.histories[found.name].why(event_id)
    ids = found.shown().ids
    ever = any(
        event_id in found.shown(version).ids for version in range(event_id, found.version + 1)
    )
    gone = "taken back" if isinstance(why.by, es.Retraction) else "forgotten"
    fate = "shown" if event_id in ids else gone if ever else "never shown"
    same(
        "why",
        (why.fate, why.position),
        (fate, ids.index(event_id) if fate == "shown" else None),
        found.name,
    )


def rows(process):
    """The list of conversations, and their heads: an event has one head, in every store, for
    ever.
    """
    site = process.site
    found = list(process.store.iter_conversations())
    same("ids in the list", [row.id for row in found], site.model.names())
    for row in found:
        living = site.model.living.get(row.id)
        tombs = site.model.tombs.get(row.id, [])
        generation = len(tombs) - (living is None)
        same("generation", row.generation, generation, row.id)
        if living is None:
            same(
                "erased",
                ((row.erased_reason or "").split(";")[0], row.version),
                (tombs[-1].erased, tombs[-1].version),
                row.id,
            )
            continue
        same("row", (row.version, row.erased_at), (living.version, None), row.id)
        parent = None if living.parent is None else living.parent.name
        same("parent", row.parent, parent, row.id)
        head = site.world.heads.setdefault(living.events[-1]["tag"], row.head)
        same("head", row.head, head, row.id)


def recent(process, rng):
    site = process.site
    wanted = rng.choice([{}, {}, {"app": "x"}, {"app": "y"}, {"tags": ["t"]}, {"app": "x", "n": 1}])
    got = []
    after = None
    while True:
        page = process.histories.list(wanted, limit=rng.choice((2, 100)), after=after, age_max_s=0)
        got += page.conversations
        after = page.after
        if after is None:
            break
    want = site.model.recent(wanted)
    same("recent", sorted(each.id for each in got), sorted(name for _, name in want), wanted)
    active = {name: at for at, name in want}
    same(
        "recent's times",
        [site.world.at_of(each.updated_at) for each in got],
        [active[each.id] for each in got],
        wanted,
    )
    same("recent's order", [active[each.id] for each in got], [at for at, _ in want], wanted)
    for each in got:
        attributes = site.model.living[each.id].documents().get("attributes", {})
        same("recent's attributes", dict(each.attributes or {}), attributes, each.id)


def search(process, rng):
    site = process.site
    words = (
        [rng.choice(WORDS)]
        if rng.random() < 0.4
        else [f"word{rng.randrange(1, site.world.tokens + 2):06d}q"]
    )
    if rng.random() < 0.2:
        words.append(rng.choice(WORDS))
    within = rng.choice((None, None, rng.choice(NAMES)))
    if within is not None and within not in site.model.living:
        return
    if site.ring and process.store.database.settings.keys is None:
        return
    hits = process.histories.search(" ".join(words), conversation=within, limit=1000)
    got = sorted((hit.conversation, hit.id) for hit in hits)
    same("search", got, sorted(site.model.found(words, within)), f"{words} in {within}")


def follow(process, *, anew=True):
    """Follow on from where this follower was, and compare what it holds, and what one holds that
    begins now.
    """
    site = process.site
    if site.position > process.store.database.last_position:
        site.followed, site.forks, site.position = {}, {}, 0
    site.position = _followed(process, site.position, site.followed, site.forks)
    _compare_followed("follow", site.followed, site.forks, site.model)
    if anew:
        held = {}
        forks = {}
        _followed(process, 0, held, forks)
        _compare_followed("follow anew", held, forks, site.model)


def _followed(process, last, held, forks):
    """``held`` has the events of each conversation with their positions; None for redacted ones."""
    start = last
    for recorded in process.store.follow(last):
        if not recorded.position > last:
            raise Finding("positions", f"{recorded.position} after {last}")
        last = recorded.position
        name = recorded.conversation
        match recorded.event:
            case es.Erased():
                held.pop(name, None)
                forks.pop(name, None)
                continue
            case es.Forked(parent=parent, version=version):
                forks[name] = (parent, version)
                continue
            case es.Detached():
                forks.pop(name, None)  # one entry for each conversation whose events it has
                continue
            case es.StoreRestored(after=kept) if kept < start:
                held.clear()
                forks.clear()
                return _followed(process, 0, held, forks)
            case es.Redaction(event_ids=ids) | es.RedactionCopied(event_ids=ids):
                for each in ids:
                    if each in held.get(name, {}):
                        held[name][each] = (held[name][each][0], None)
        if isinstance(recorded.event, es.Entry):
            continue  # what else is entered changes nothing that this follower holds
        event = said(recorded.event)
        held.setdefault(name, {})[event["id"]] = (last, None if event["redacted"] else event)
    return last


def _compare_followed(label, held, forks, store):
    parents = {
        each.name: (each.parent.name, each.own_from)
        for each in store.living.values()
        if each.parent
    }
    same(f"{label}: forks", forks, parents)
    want = {
        name: {event["id"]: None if event["redacted"] else expected(event) for event in events}
        for name, events in store.followed().items()
    }
    got = {
        name: {number: event for number, (_, event) in events.items()}
        for name, events in held.items()
    }
    same(f"{label}: conversations", sorted(got), sorted(want))
    for name, events in want.items():
        same(label, got[name], events, name)
        places = [held[name][number][0] for number in sorted(held[name])]
        if not store.living[name].detached:
            same(f"{label}: order", places, sorted(places), name)


def audited(process):
    for name in process.site.model.living:
        audited = audit(process.store, name)
        same("audit", (audited.findings, audited.missing), ((), 0), name)


def verified(process):
    for verdict in process.histories.maintenance.verify():
        unfinished = {name for name, _ in process.site.unfinished}
        if verdict.conversation not in unfinished and not (
            verdict.conversation is None and unfinished
        ):
            same("verify", [str(finding) for finding in verdict.findings], [], verdict.conversation)


def served(process, name, rng):
    """What the server reads: a page of a conversation, its texts, the list with its titles."""
    site = process.site
    found = site.model.living.get(name)
    if found is None:
        want = "ConversationErased" if site.model.tombs.get(name) else "ConversationNotFound"
        same("page of one that is gone", error_of(lambda: process.pages.history(name)), want, name)
    else:
        _page(process, found, rng)
    if rng.random() < 0.8:
        return
    process.served.list()
    figures(process.served)
    listed = process.served.list()
    rows = {each.conversation: each.version for each in listed.conversations}
    same("served list", rows, {each.name: each.version for each in site.model.living.values()})
    told = [word for each in listed.conversations for word in split([each.title, each.attributes])]
    same("what the served list says", erased(site).intersection(told), set())


def _page(process, found, rng):
    name, now = found.name, found.version
    since = rng.choice((0, rng.randrange(now + 1)))
    page = process.pages.history(name, since)
    same("page", (page.version, page.since), (now, since), name)
    lineage, each = [], found
    while each.parent is not None:
        lineage.insert(0, (each.parent.name, each.own_from))
        each = each.parent
    same(
        "page's borders",
        [(each.parent, each.parent_version) for each in page.borders],
        lineage,
        name,
    )
    attributes = found.documents().get("attributes", {})
    same("page's attributes", page.attributes, attributes, name)
    views = [set(found.shown(version).ids) for version in range(now + 1)]
    left = []
    for each_id in range(since, now):
        shown = [version for version in range(each_id + 1, now + 1) if each_id in views[version]]
        gone = (
            [version for version in range(shown[0], now + 1) if each_id not in views[version]]
            if shown
            else [-1]
        )
        left.append(gone[0] if gone else 0)
    same("page's column of what left", list(page.events.left), left, f"{name} since {since}")
    words = [set(tokens(event)) for event in found.events]
    event_id = rng.randrange(now)
    text = process.pages.event(name, event_id)
    same(
        "page's text",
        set(tokens(text.event)),
        words[event_id],
        f"{name} {event_id}",
    )
    if words[event_id]:
        word = min(words[event_id])
        hits = [hit.event for hit in process.pages.find(name, word)]
        same(
            "page's find",
            hits,
            [number for number, some in enumerate(words) if word in some],
            f"{name} {word}",
        )


def erased(site):
    """Return the words that were erased or redacted in a store, and that nothing there says."""
    said = {
        word
        for each in site.model.living.values()
        for event in each.events
        for word in tokens(event)
    }
    return site.gone - said


def reported(process):
    """The audit file, brought up to date: its events, and no word that was erased."""
    site = process.site
    path = site.world.folder / f"{site.name}.audit"
    update(process.store, path)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT conversation, id, text FROM events").fetchall()
        conversations = connection.execute(
            "SELECT id, version FROM conversations WHERE erased_at IS NULL"
        ).fetchall()
    living = site.model.living
    got = {(name, number): set(tokens(text)) for name, number, text in rows}
    want = {
        (name, e["id"]): set(tokens(e))
        for name, events in site.model.followed().items()
        for e in events
    }
    same("audit file's events", sorted(got), sorted(want))
    for key, words in want.items():
        same("audit file's words", got[key], words, key)
    same(
        "audit file's conversations",
        dict(conversations),
        {each.name: each.version for each in living.values()},
    )
    data = path.read_bytes()
    for word in erased(site):
        if word.encode() in data:
            raise Finding("audit file", f"it still says {word}")


def figured(process):
    """The figures that are stored, against figures that are made anew."""
    store, views = process.store, process.histories.views
    living = [row for row in store.iter_conversations() if row.erased_at is None]
    for row, stored in FiguresOfStore(store).of(living):
        same("overview", stored.overview, overview_of(store, views, row), row.id)
        spent = process.histories[row.id].stats().document().spent
        same("cost", spent_by(stored.calls, Prices()).cost, spent.cost, row.id)
    stored_stats = collect_stats(store, None, views=views).document()
    for row in living:
        key = store.query(row.id, attrgetter("key"))
        store.database.recorder.transact(methodcaller("forget_figures", key))
    same("stats", stored_stats, collect_stats(store, None, views=views).document())


def everything(process, rng):
    for name in NAMES:
        whole(process, name, rng)
    rows(process)
    follow(process)
    search(process, rng)
    recent(process, rng)
    verified(process)


def derived(process, rng):
    """What is kept or shown beside the events."""
    audited(process)
    served(process, rng.choice(NAMES), rng)
    reported(process)
    figured(process)
