"""Metric with the expiry times of certificates. The times are read when metrics are scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class CertificateCollector(Collector):
    """Exports the expiry time of each certificate.

    ``ends`` returns these times in seconds since the epoch, by the name of the certificate: ``serving``,
    ``authority``, ``client`` or ``kubeconfig``. Certificates that do not exist or cannot be parsed are left out.
    """

    def __init__(self, ends: Callable[[], Mapping[str, float]]) -> None:
        self._ends = ends

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "homeport_certificate_expiration_timestamp_seconds",
            "When a certificate ends, in seconds since the epoch.",
            labels=["certificate"],
        )
        for name, ends in self._ends().items():
            family.add_metric([name], ends)
        yield family
