"""The public names of formats and the modules that define them."""

from foldlog.formats.conversion import decode as decode
from foldlog.formats.conversion import encode as encode
from foldlog.formats.detection import detect as detect
from foldlog.formats.encoding import Encoder as Encoder
from foldlog.formats.encoding import StoredRecords as StoredRecords
from foldlog.formats.files.found_sources import NotAHistory as NotAHistory
from foldlog.formats.files.found_sources import SourceRefused as SourceRefused
from foldlog.formats.format import Format as Format
from foldlog.formats.format import Options as Options
from foldlog.formats.format import RecordDecoder as RecordDecoder
from foldlog.formats.format import RecordEncoder as RecordEncoder
from foldlog.formats.format import UnusableFormat as UnusableFormat
from foldlog.formats.record import ImportFinding as ImportFinding
from foldlog.formats.record import NotAnEvent as NotAnEvent
from foldlog.formats.registry import UnknownFormat as UnknownFormat
from foldlog.formats.registry import register as register

FORMATS: tuple[str, ...]
"""The names of all formats, for imports and exports."""
