"""The condensing strategies, with their types in a configuration. An import of this package loads
none of its modules.

showing            show everything (noop), or less at every step (recent_events, two masks); forget
                   nothing
clearing           show old tool results as a line, many at once, and no old thinking; forget
                   nothing
forgetting         forget without a summary: amortized_forgetting, llm_attention,
                   conversation_window
summarizing        the common part of strategies that leave a summary: digest, and the strategies in
                   model_summaries (llm, structured_summary)
digest/            a summary without a model: a fold over the forgotten events
pipeline           several condensers in order
user_words         the user's words in a message, apart from what a runtime added
"""
