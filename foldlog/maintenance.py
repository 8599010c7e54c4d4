"""The class of ``histories.maintenance``, and the results of its methods."""

from foldlog._maintenance import (
    Archived as Archived,
    BackedUp as BackedUp,
    Expired as Expired,
    Maintenance as Maintenance,
    Moved as Moved,
    Published as Published,
    RedactionReceipt as RedactionReceipt,
    Rekeyed as Rekeyed,
    StoreCheckpoint as StoreCheckpoint,
    UnequalConversation as UnequalConversation,
    Vacuumed as Vacuumed,
    Verdict as Verdict,
)
from foldlog._redacting import RedactionReport as RedactionReport
