"""``foldlog secrets``: find keys and tokens in conversations."""

from __future__ import annotations

from foldlog._app.cli import terminal
from foldlog._app.cli.options import conversations_argument, store_options
from foldlog._app.cli.stores import chosen, open_existing
from foldlog._reports.answers.programs import SecretDocument, SecretsDocument
from foldlog._reports.search.secrets import kinds_in, secrets_in
from foldlog._reports.words.gist import count


@conversations_argument
@store_options
def run(
    conversations: tuple[str, ...],
    db: str,
) -> None:
    """Find events with keys and tokens of known shapes, such as keys of AWS and tokens of GitHub or
    Slack. The command prints the ids of the events and the kinds of secrets, never their values.

    'foldlog store redact --secrets' redacts events with secrets. 'foldlog import --redact-secrets'
    leaves out the texts of records with secrets. The exit status is 1 if there is a secret. Needs
    the extra 'secrets'.

    Example: foldlog secrets tidewatch
    """
    kinds_in("")  # raises the error for a missing extra before the work
    unread = list[str]()
    documents = list[SecretDocument]()
    with open_existing(db) as store, terminal.working("searching"):
        for name in chosen(store, conversations):
            for event, kinds in secrets_in(store, name, unread):
                documents.append(SecretDocument(conversation=name, event=event.id, kinds=kinds))
    document = SecretsDocument(secrets=tuple(documents), unread=tuple(unread))
    terminal.answer(document, lambda: _show(document))
    terminal.warn(*unread)
    if documents:
        terminal.matched_nothing()


def _show(document: SecretsDocument) -> None:
    """Print the events with secrets, and their number."""
    for secret in document.secrets:
        terminal.say(
            f"{terminal.typed_id(secret.conversation)} {secret.event}: {', '.join(secret.kinds)}"
        )
    names = {secret.conversation for secret in document.secrets}
    terminal.say(
        f"{count(len(document.secrets), 'event')} of {count(len(names), 'conversation')} with"
        " secrets"
    )
