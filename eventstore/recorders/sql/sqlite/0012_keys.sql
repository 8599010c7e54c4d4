-- Schema 12: the wrapping keys in use are found without a look at each conversation.

CREATE INDEX conversations_by_key ON conversations (key_id) WHERE visible AND key_id IS NOT NULL;
