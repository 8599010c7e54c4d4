"""What a conversation looks like now, or looked like then: the View, a fold of the log.

Everything here can be thrown away and made again from the log.
"""

from projections.messages import Rendered
from projections.view import View
from projections.well_formed import cut_points, well_formed

__all__ = ["Rendered", "View", "cut_points", "well_formed"]
