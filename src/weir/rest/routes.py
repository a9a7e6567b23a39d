"""All routes that are served, in one table; OpenAPI and the router are made from it."""

from __future__ import annotations

import functools
from typing import Any, Final

from weir.rest import (
    async_routes,
    checkpoint_routes,
    cluster_routes,
    contents_routes,
    job_routes,
    page_routes,
    state_routes,
)
from weir.rest.cluster import Cluster
from weir.rest.openapi import document
from weir.rest.routing import Request, Route


def openapi(_cluster: Cluster, _request: Request) -> dict[str, Any]:
    """Tell what is served."""
    return _document()


@functools.cache
def _document() -> dict[str, Any]:
    return document(ROUTES)


ROUTES: Final[tuple[Route, ...]] = (
    *cluster_routes.ROUTES,
    *job_routes.ROUTES,
    *checkpoint_routes.ROUTES,
    *async_routes.ROUTES,
    *page_routes.ROUTES,
    *contents_routes.ROUTES,
    *state_routes.ROUTES,
    Route("GET", "/openapi.json", openapi, "This document.", response=dict[str, Any]),
)
