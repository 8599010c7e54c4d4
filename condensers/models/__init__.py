"""The language models that condensers and budgets use. An import of this package loads none of its
modules.

client       the one file that imports litellm, at the first call; llm_config is its configuration
replies      one question to a model, and the check of its reply
failures     the errors of a call: which kind, without secrets
deadline     a time limit for a call
limits       the window of a model that a log names
tokens, estimate    count the tokens of a View: by the model's tokenizer, or estimated
agents_model    the agent's own model in the place of a condenser's; its tool that requests a
                condensation
"""
