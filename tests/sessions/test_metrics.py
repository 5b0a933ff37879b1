"""The Prometheus collector says what stats() says."""

from __future__ import annotations

import pytest

from tests.sessions.standin import StandIn
from toktier_jax import SessionStore
from toktier_jax.sessions.metrics import collector


def test_families() -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    store = SessionStore(StandIn())
    store.open("a", "abc").append(" def")
    registry = prometheus.CollectorRegistry()
    registry.register(collector(store))
    assert registry.get_sample_value("toktier_jax_sessions") == 1
    assert registry.get_sample_value("toktier_jax_changes_total", {"outcome": "append"}) == 1
    assert registry.get_sample_value("toktier_jax_shadow_total", {"outcome": "mismatches"}) == 0
