"""All routes that are served, in one table; OpenAPI and the router are made from it."""

from __future__ import annotations

from typing import Final

from weir.rest import async_routes
from weir.rest.routing import Route

ROUTES: Final[tuple[Route, ...]] = (*async_routes.ROUTES,)
