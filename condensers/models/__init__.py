"""The language models that condensers and budgets use. An import of this package loads none of its
modules.

client         calls models and counts tokens; the only file that imports litellm
llm_config     the configuration of a model
replies        asks a model, and checks its reply
failures       classifies the errors of a call, and removes secrets from them
deadline       a time limit for the calls of a step
limits         finds what litellm's table says about a model
caches         the rules of the providers' prompt caches
tokens         counts the tokens of a View
counting       counts the tokens of a prompt as litellm does
estimate       estimates the tokens of a View
agents_model   the agent's model, for condensers that name no model; a tool with which the agent
               requests a condensation
"""
