"""What a conversation looks like now, or looked like then: the View, a fold of the log.

Everything here can be thrown away and made again from the log.
"""

from projections.audit import Audit, Finding, Forgetting, audit
from projections.difference import Difference, Summarized
from projections.errors import NoSuchEvent, NoSuchVersion
from projections.messages import Rendered
from projections.view import View
from projections.views import Views
from projections.well_formed import cut_points, well_formed
from projections.why import Why

__all__ = [
    "Audit",
    "Difference",
    "Finding",
    "Forgetting",
    "NoSuchEvent",
    "NoSuchVersion",
    "Rendered",
    "Summarized",
    "View",
    "Views",
    "Why",
    "audit",
    "cut_points",
    "well_formed",
]
