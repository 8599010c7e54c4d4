"""A summary written by a model, as free text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foldlog.condensers.models.agents_model import AskingCondenser
from foldlog.condensers.models.replies import ask, fit_to_replace, made_by, report_on
from foldlog.condensers.prompts import load_prompt
from foldlog.condensers.prompts.rendering import event_blocks, previous_summary
from foldlog.condensers.strategies.summarizing import SummarizingCondenser, Summary
from foldlog.eventstore import Event


@dataclass(frozen=True, kw_only=True, eq=False)
class LLMSummarizingCondenser(AskingCondenser, SummarizingCondenser):
    """A model summarizes the forgotten events, building on its previous summary."""

    type = "llm"

    def summarize(self, events: Sequence[Event], max_event_length: int | None) -> Summary:
        prompt = load_prompt("summary")
        reply = ask(
            self.llm,
            prompt.messages(
                previous_summary=previous_summary(events, max_event_length),
                events=event_blocks(events, max_event_length),
            ),
        )
        text = fit_to_replace(reply, reply.text or "", events)
        return Summary(text, made_by(reply, prompt), (report_on(reply),))
