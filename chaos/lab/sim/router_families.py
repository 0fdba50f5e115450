"""Metric families of the router, by the names of sglang-router 0.3.2."""

from __future__ import annotations

from chaos.lab.sim.exposition import Family

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

ROUTER_FAMILIES = (
    Family("smg_http_requests_total", "counter", "router", "Total HTTP requests."),
    Family("smg_http_responses_total", "counter", "router", "Total HTTP responses."),
    Family("smg_http_connections_active", "gauge", "router", "Active HTTP connections."),
    Family("smg_http_request_duration_seconds", "histogram", "router", "HTTP request duration.", _SECONDS),
    Family("smg_router_requests_total", "counter", "router", "Total requests routed."),
    Family("smg_router_request_errors_total", "counter", "router", "Total routing errors."),
    Family("smg_router_request_duration_seconds", "histogram", "router", "Routed request duration.", _SECONDS),
    Family("smg_router_upstream_responses_total", "counter", "router", "Responses of workers."),
    Family("smg_worker_pool_size", "gauge", "router", "Number of workers."),
    Family("smg_worker_health", "gauge", "router", "Worker health (1 healthy, 0 unhealthy)."),
    Family("smg_worker_health_checks_total", "counter", "router", "Worker health checks."),
    Family("smg_worker_requests_active", "gauge", "router", "Requests in flight on a worker."),
    Family("smg_worker_selection_total", "counter", "router", "Worker selections."),
    Family("smg_worker_errors_total", "counter", "router", "Errors of workers."),
    Family("smg_worker_retries_total", "counter", "router", "Retries."),
    Family("smg_worker_retries_exhausted_total", "counter", "router", "Requests whose retries ran out."),
    Family("smg_worker_cb_state", "gauge", "router", "Circuit breaker state (0 closed, 1 open, 2 half-open)."),
    Family("smg_worker_cb_outcomes_total", "counter", "router", "Outcomes seen by the circuit breaker."),
)
