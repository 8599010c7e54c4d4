"""The strategies, one file each, named by the type in a configuration. Importing this package loads nothing.

noop, pipeline                                    show everything; run others in order
masking, recent                                   show less at every step, forget nothing; masking has two strategies
amortized, conversation_window, llm_attention     forget without a summary
digest, llm_summary, structured_summary           forget and leave a summary; summarizing is their common part;
                                                  digest_facts and digest_words are what a digest takes from the events
"""
