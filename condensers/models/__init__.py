"""The language models behind condensers and budgets. Importing this package loads nothing.

client       the one file that imports litellm, at the first call; llm_config is its configuration
ask          one question to a model and the check of its reply
exchange, failures, deadline, redaction    requests and replies, errors, time limits, secrets
tokens, prompt_sums, estimate    count the tokens of a View: by the model's tokenizer, or estimated
counted_tokens                   count those of one event by itself
budget       how many tokens a View may take
agents_model, providers     the agent's own model; forms of messages, and marks for cached parts of a prompt
requests     how an agent's model, or its runtime after an error, requests a condensation
"""
