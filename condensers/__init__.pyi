"""The public names of condensers and the modules that define them."""

from foldlog.condensers.base import AgentModel as AgentModel
from foldlog.condensers.base import Condensation as Condensation
from foldlog.condensers.base import Condenser as Condenser
from foldlog.condensers.base import CondenserBase as CondenserBase
from foldlog.condensers.base import PipelinableCondenserBase as PipelinableCondenserBase
from foldlog.condensers.base import Reason as Reason
from foldlog.condensers.base import Reply as Reply
from foldlog.condensers.base import Requirement as Requirement
from foldlog.condensers.base import Step as Step
from foldlog.condensers.base import Summarizer as Summarizer
from foldlog.condensers.base import ToolCall as ToolCall
from foldlog.condensers.config.parameters import (
    AmortizedForgettingCondenserConfig as AmortizedForgettingCondenserConfig,
)
from foldlog.condensers.config.parameters import (
    BrowserOutputCondenserConfig as BrowserOutputCondenserConfig,
)
from foldlog.condensers.config.parameters import (
    ClearThinkingCondenserConfig as ClearThinkingCondenserConfig,
)
from foldlog.condensers.config.parameters import (
    ClearToolUsesCondenserConfig as ClearToolUsesCondenserConfig,
)
from foldlog.condensers.config.parameters import (
    ConversationWindowCondenserConfig as ConversationWindowCondenserConfig,
)
from foldlog.condensers.config.parameters import DigestCondenserConfig as DigestCondenserConfig
from foldlog.condensers.config.parameters import (
    LLMAttentionCondenserConfig as LLMAttentionCondenserConfig,
)
from foldlog.condensers.config.parameters import (
    LLMSummarizingCondenserConfig as LLMSummarizingCondenserConfig,
)
from foldlog.condensers.config.parameters import NoOpCondenserConfig as NoOpCondenserConfig
from foldlog.condensers.config.parameters import (
    ObservationMaskingCondenserConfig as ObservationMaskingCondenserConfig,
)
from foldlog.condensers.config.parameters import PipelineCondenserConfig as PipelineCondenserConfig
from foldlog.condensers.config.parameters import (
    RecentEventsCondenserConfig as RecentEventsCondenserConfig,
)
from foldlog.condensers.config.parameters import (
    StructuredSummaryCondenserConfig as StructuredSummaryCondenserConfig,
)
from foldlog.condensers.config.registry import CONDENSER_REGISTRY as CONDENSER_REGISTRY
from foldlog.condensers.config.registry import CondenserConfig as CondenserConfig
from foldlog.condensers.config.registry import condenser_from_config as condenser_from_config
from foldlog.condensers.config.registry import list_strategies as list_strategies
from foldlog.condensers.config.registry import register_config as register_config
from foldlog.condensers.config.toml import (
    condenser_config_from_toml_section as condenser_config_from_toml_section,
)
from foldlog.condensers.config.toml import load_condenser as load_condenser
from foldlog.condensers.config.toml import load_condenser_config as load_condenser_config
from foldlog.condensers.errors import CondenserError as CondenserError
from foldlog.condensers.errors import InvalidCondenser as InvalidCondenser
from foldlog.condensers.errors import ModelCallFailed as ModelCallFailed
from foldlog.condensers.errors import NoCondensationAvailable as NoCondensationAvailable
from foldlog.condensers.errors import TokensUnknown as TokensUnknown
from foldlog.condensers.handler import CondenseHandler as CondenseHandler
from foldlog.condensers.models.agents_model import (
    request_condensation_tool as request_condensation_tool,
)
from foldlog.condensers.models.client import LLM as LLM
from foldlog.condensers.models.estimate import ESTIMATE as ESTIMATE
from foldlog.condensers.models.failures import is_context_window_error as is_context_window_error
from foldlog.condensers.models.llm_config import LLMConfig as LLMConfig
from foldlog.condensers.reports import CONDENSER_METADATA_KEY as CONDENSER_METADATA_KEY
from foldlog.condensers.reports import Report as Report
from foldlog.condensers.reports import Usage as Usage
from foldlog.condensers.reports import model_of as model_of
from foldlog.condensers.reports import on_a_model as on_a_model
from foldlog.condensers.reports import reports_of as reports_of
from foldlog.condensers.rolling import RollingCondenser as RollingCondenser
from foldlog.condensers.states import get_condensation_metadata as get_condensation_metadata
from foldlog.condensers.strategies.clearing import ClearThinkingCondenser as ClearThinkingCondenser
from foldlog.condensers.strategies.clearing import ClearToolUsesCondenser as ClearToolUsesCondenser
from foldlog.condensers.strategies.digest import DigestCondenser as DigestCondenser
from foldlog.condensers.strategies.digest import default_condenser as default_condenser
from foldlog.condensers.strategies.forgetting import (
    AmortizedForgettingCondenser as AmortizedForgettingCondenser,
)
from foldlog.condensers.strategies.forgetting import (
    ConversationWindowCondenser as ConversationWindowCondenser,
)
from foldlog.condensers.strategies.forgetting import LLMAttentionCondenser as LLMAttentionCondenser
from foldlog.condensers.strategies.model_summaries import (
    LLMSummarizingCondenser as LLMSummarizingCondenser,
)
from foldlog.condensers.strategies.model_summaries import (
    StructuredSummaryCondenser as StructuredSummaryCondenser,
)
from foldlog.condensers.strategies.pipeline import CondenserPipeline as CondenserPipeline
from foldlog.condensers.strategies.pipeline import PipelineCondenser as PipelineCondenser
from foldlog.condensers.strategies.showing import BrowserOutputCondenser as BrowserOutputCondenser
from foldlog.condensers.strategies.showing import NoOpCondenser as NoOpCondenser
from foldlog.condensers.strategies.showing import (
    ObservationMaskingCondenser as ObservationMaskingCondenser,
)
from foldlog.condensers.strategies.showing import RecentEventsCondenser as RecentEventsCondenser
from foldlog.condensers.strategies.showing import is_masked as is_masked
