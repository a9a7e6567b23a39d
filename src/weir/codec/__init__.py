"""Typed values to bytes and back: `codec_for` for snapshots, `weir.codec.arrow` for exchanges."""

from weir.codec.codec import Codec, codec_for

__all__ = ["Codec", "codec_for"]
