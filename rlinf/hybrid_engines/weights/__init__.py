"""Weight synchronisation: buckets of bytes under a manifest with checksum and version.

Knows neither engines nor transports: packs named tensors, and loads them elsewhere or refuses.
"""
