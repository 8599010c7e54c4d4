"""Find the events that a View shows from lifetimes alone, as the page does."""

from foldlog.projections import Lifetimes


def shown_at(lives: Lifetimes, version: int) -> list[int]:
    """Return the ids of the View at a version, in its order."""
    register: tuple[int, int] | None = None
    covering = {}
    for summary, entry in lives.summaries.items():
        span = next((span for span in entry.spans if span.covers(version)), None)
        if span is not None and span.index is not None:
            register = span.index, summary
        elif span is not None:
            covering[summary] = span.place
    standing = [at for at in lives.order if covering.get(at.summary) == at.place]
    ids: list[int] = []
    place = 0
    for event in lives.events[:version]:
        while place < len(standing) and standing[place].event < event.id:
            ids.append(standing[place].summary)
            place += 1
        if any(span.covers(version) for span in event.spans):
            ids.append(event.id)
    ids += [at.summary for at in standing[place:]]
    if register is not None:
        ids.insert(*register)
    return ids
