"""Render the events of a View as the messages that a model's server accepts.

    SystemMessage          system
    Message                user or assistant, by its source; a message of the environment is a user
                           message, because many models accept a system message only at the
                           beginning
    Action                 assistant, with a tool call; the actions of one response are one message
    Observation            tool, right after the message that made the call, if servers require this
    Action of the user or the environment, with its Observation   user: the thought and the content
    CondensationSummary    user
    Annotation             user, if its writer marked it as shown: its name, then its data
    unknown                not sent to a model

Neighboring user messages become one message. A message without text, image or call is left out,
because servers refuse an empty message. A *dialect* is the form that one kind of server accepts:

    openai       OpenAI's chat completions, which many servers accept
    litellm      chat completions for litellm, which translates them for each provider: with
                 thinking blocks, and with images in tool messages
    anthropic    Anthropic's messages, without the system prompt: ``View.system_prompt`` returns it
    anthropic-cached    Anthropic's messages with marks up to which the server caches the prompt
    responses    items of OpenAI's Responses API, with the model's reasoning
    openai-reasoning    chat completions with the model's thinking as ``reasoning_content``, which
                        some servers require

``turns.py`` finds the turns of a conversation, ``rendering.py`` makes their messages,
``growing.py`` keeps the messages with the View, and ``requests.py`` has the request that a View
becomes. If a dialect cannot express a content, a text describes the content instead. An import of
this package loads none of its modules.
``tests/projections/chat_rules.py`` contains the rules of each dialect.
"""
