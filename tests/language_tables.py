"""Makes what processes of language models make once each, as soon as one is built: half a second of a processor."""

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

# The table of all families' renamed weights, whose regular expressions are compiled.
get_checkpoint_conversion_mapping("qwen2")
