"""A Prometheus collector over the counters of a SessionStore. Needs the extra `metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toktier_jax.errors import UnsupportedError
from toktier_jax.sessions.store import SessionStore


def collector(store: SessionStore) -> Any:
    """A collector to register with `prometheus_client.REGISTRY.register`. It asks `stats()` at each scrape.

    Raises UnsupportedError where prometheus-client is not installed.
    """
    try:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        from prometheus_client.registry import Collector
    except ModuleNotFoundError:
        raise UnsupportedError("metrics need prometheus-client; pip install 'toktier-jax[metrics]' brings it") from None

    class StoreCollector(Collector):
        """Families: sessions, handles, bytes; changes by outcome, seconds; events; shadow samples by outcome."""

        def collect(self) -> Iterator[Any]:
            stats = store.stats()
            for name in ("sessions", "handles", "bytes"):
                yield GaugeMetricFamily(f"toktier_jax_{name}", f"{name} in memory", value=stats[name])
            yield CounterMetricFamily("toktier_jax_change_seconds", "time of all changes", value=stats["seconds"])
            for name, label, help_ in (
                ("changes", "outcome", "changes by how the ids were repaired"),
                ("counts", "event", "what else happened to sessions"),
                ("shadow", "outcome", "samples of the shadow verifier"),
            ):
                family = CounterMetricFamily(f"toktier_jax_{name}", help_, labels=[label])
                for key, value in stats[name].items():
                    family.add_metric([key], value)
                yield family

    return StoreCollector()
