"""The language models behind condensers and budgets. Importing this package loads nothing.

client       the one file that imports litellm, at the first call; llm_config is its configuration
ask          one question to a model and the check of its reply
exchange, failures, deadline, redaction    requests and replies, errors, time limits, secrets
tokens, prompt_sums, budget                how many tokens a View takes, and how many it may take
requests     the tool with which an agent's model asks for a condensation, and the error after which its runtime does
"""
