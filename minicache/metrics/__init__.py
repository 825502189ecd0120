"""The definitions of the serving metrics, once: latency, throughput, occupancy, waste, fairness."""

from minicache.metrics.distribution import Distribution, distribution
from minicache.metrics.fairness import jain_index, largest_service_gap, served_tokens
from minicache.metrics.occupancy import Level, PoolUse, pool_use
from minicache.metrics.requests import (
    Outcome,
    PromptClass,
    RequestMetrics,
    measure,
    prompt_class,
    token_times,
)
from minicache.metrics.slo import Slo
from minicache.metrics.summary import (
    Counts,
    FirstToken,
    Summary,
    count_outcomes,
    inter_token_latency,
    summarize,
)
from minicache.metrics.window import Window, steady, whole, worst_gap
from minicache.metrics.work import Work, work

__all__ = [
    "Counts",
    "Distribution",
    "FirstToken",
    "Level",
    "Outcome",
    "PoolUse",
    "PromptClass",
    "RequestMetrics",
    "Slo",
    "Summary",
    "Window",
    "Work",
    "count_outcomes",
    "distribution",
    "inter_token_latency",
    "jain_index",
    "largest_service_gap",
    "measure",
    "pool_use",
    "prompt_class",
    "served_tokens",
    "steady",
    "summarize",
    "token_times",
    "whole",
    "work",
    "worst_gap",
]
