"""Plain values beside events.

arguments    check the numbers and moments that callers give
bodies       bytes that stand beside the JSON text of an event
exact        the form of a body with values that JSON cannot hold
ids          the ids that a condensation forgets, as a list that is kept as a range
json_values  find values that JSON would give back as another type
outcome      the outcome of a call that another thread made
"""
