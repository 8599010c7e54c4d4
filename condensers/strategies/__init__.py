"""The condensing strategies, with their types in a configuration. An import of this package loads
none of its modules.

showing            show everything (noop), or hide or mask events (recent_events, two masks);
                   forget nothing
clearing           show a line for an old tool result, and hide old thinking; forget nothing
forgetting         forget without a summary: amortized_forgetting, llm_attention,
                   conversation_window
summarizing        the base of the strategies with a summary: digest, and in model_summaries llm
                   and structured_summary
digest/            a summary without a model: a fold over the forgotten events
pipeline           several condensers in order
user_words         separates the user's words from the text that a runtime added
"""
