"""The language models that condensers and budgets use. An import of this package loads none of its
modules.

client       the one file that imports litellm, at the first call; llm_config is its configuration
replies      ask a model, and check its reply
failures     classify the errors of a call, and remove secrets from them
deadline     a time limit for a call
limits       find the context window of a model
tokens, estimate    count or estimate the tokens of a View
agents_model    the agent's model, for condensers that name no model; its tool that requests a
                condensation
"""
