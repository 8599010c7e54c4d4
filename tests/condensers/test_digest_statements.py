"""Every statement of a digest of real histories names an event that holds its words. The reader here
knows only the form of a digest: headings, and lines that end with the id of an event.
"""

import json
import re

import foldlog
from foldlog.condensers.strategies.digest import Digest
from foldlog.condensers.strategies.digest.layout import text_of
from foldlog.eventstore.codec import encode
from tests.beside import FOLDERS, SAMPLES, needs_samples

LENGTH = 20_000
STATEMENT = re.compile(r"^- (.*) \[(\d+)\]$", re.DOTALL)
OTHER_EVENT = re.compile(r"\[(\d+)\]")
WORD = re.compile(r"[^\W_][\w./-]{2,}")
_WORDS = """
agent and asked before block by cancelled change changed characters check command
committed completed created deleted done edited error example exit failed file from had
in_progress into last left lines long match more moved no not of omitted open out output
pending plan ran refused removed review said see shown since task tasks the this times
todo tool until updated user was while worked written
"""
OF_THE_DIGEST = frozenset(_WORDS.split())
"""The words that a digest adds to what it quotes."""
CHANGED_SINCE = re.compile(r"\(changed since: ([^)]*)\) ")
CUTS = re.compile(
    r"…|\.\.\.|\(\d[\d,]* characters and more left out\)|\(pasted text of [\d,]+ characters:?"
)


def plain(text):
    return text.replace("\\n", " ").replace("\\t", " ")


def texts_of_events(events):
    """Map the id of each event to its words. A result also has the words of its call."""
    texts = {}
    calls = {}
    said = None
    for event in events:
        body = encode(event, ours=True).body.decode(errors="replace")
        text = json.dumps(json.loads(body), ensure_ascii=False)
        for _ in range(3):  # arguments may be JSON in JSON
            text = plain(text.replace("\\\\", "\\").replace('\\"', '"').replace("\\/", "/"))
        texts[event.id] = text
        call_id = getattr(event, "call_id", None)
        if type(event).__name__ == "Action":
            calls[event.id] = calls[call_id] = event.id
        elif type(event).__name__ == "Observation":
            call = calls.get(event.cause, calls.get(call_id))
            if call is not None:
                texts[event.id] += " " + texts[call]
                texts[call] += " " + texts[event.id]
        elif event.source == "environment" and said is not None:
            texts[event.id] += " " + texts[said]  # the result of a command in a message
        if type(event).__name__ == "Message" and event.source == "agent":
            said = event.id
    return texts


def statements_of(digest):
    return [
        match.groups()
        for line in re.split(r"\n(?=- |\n## )", digest)
        if (match := STATEMENT.match(line.strip("\n")))
    ]


def missing_words(statement, text):
    """Yield the words of a statement that the text lacks. A word at a cut may be a part."""
    known = set(WORD.findall(text))
    folded = text.casefold()
    for piece in CUTS.split(plain(statement)):
        for word in WORD.findall(piece)[1:-1]:
            bare = word.strip("./-").casefold()
            if word not in known and bare not in OF_THE_DIGEST and bare not in folded:
                yield word


@needs_samples
def test_statements_name_events_that_hold_their_words():
    checked = 0
    wrong = []
    with foldlog.open("memory:") as histories:
        for folder in FOLDERS.values():
            for history in histories.import_(SAMPLES / folder, findings=lambda _: None):
                events = list(history.events())
                texts = texts_of_events(events)
                digest = text_of(Digest().plus(events[: len(events) * 2 // 3]), LENGTH)
                for statement, event_id in statements_of(digest):
                    others = map(int, OTHER_EVENT.findall(statement))
                    text = " ".join(texts.get(number, "") for number in (int(event_id), *others))
                    later = " ".join(text for at, text in texts.items() if at > int(event_id))
                    if changed := CHANGED_SINCE.match(statement):
                        statement = statement[changed.end() :]
                        names = [name for name in changed[1].split(", ") if "…" not in name]
                        wrong += [
                            (history.id, event_id, name) for name in names if name not in later
                        ]
                    checked += 1
                    if lacks := [*missing_words(OTHER_EVENT.sub("", statement), text)]:
                        wrong.append((history.id, event_id, statement[:200], lacks[:5]))
    assert wrong == []
    assert checked >= 1_000
