"""Records of OpenHands V1 for tests."""


def text(words, **more):
    return {"type": "text", "text": words, **more}


def message(name, words="hi", source="user", **more):
    role = "assistant" if source == "agent" else "user"
    llm_message = {"role": role, "content": [text(words, cache_prompt=False)]}
    return {
        "kind": "MessageEvent",
        "id": name,
        "source": source,
        "llm_message": llm_message,
        **more,
    }


def condensation(name, *forgotten, **more):
    record = {
        "kind": "Condensation",
        "id": name,
        "source": "environment",
        "forgotten_event_ids": list(forgotten),
    }
    return {**record, "llm_response_id": "r9", **more}
