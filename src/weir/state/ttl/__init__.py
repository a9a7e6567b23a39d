"""State that expires: configuration, handles, and the ways in which expired entries go away."""

from weir.state.ttl.binding import TtlStates, bind_ttl
from weir.state.ttl.config import StateTtlConfig

__all__ = ["StateTtlConfig", "TtlStates", "bind_ttl"]
