"""The condensing strategies, with their types in a configuration. An import of this package loads
none of its modules.

hiding             strategies that forget nothing: noop shows all events, recent_events hides
                   events, observation_masking and browser_output mask events
clearing           strategies that forget nothing: clear_tool_uses shows a line for an old tool
                   result, clear_thinking hides old thinking
forgetting         strategies that forget without a summary: amortized_forgetting, llm_attention,
                   conversation_window
summarizing        the base class of all strategies with a summary
savings            whether a condensation saves more than it costs
model_summaries    strategies with a summary by a model: llm, structured_summary
summary_check      whether a text of a model can be a summary of events
state_fields       the fields of structured_summary
next_prompt        asks for a summary with the agent's next prompt
parts              divides events that a model cannot read at once
digest/            the strategy digest: a summary without a model
pipeline           the strategy pipeline: several condensers in order
by_name            makes a strategy of its name
user_words         separates the user's words from the text that a runtime added
"""
