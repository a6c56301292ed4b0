"""Vision-language-action policies: modules in the published key layouts, on stock transformers.

Imports what ``rlinf.models`` may; no simulator. A new one is a file here with its dataclass in
``rlinf.config.schema.vla``. Everything on the model's side is in units of the data set that it was trained on;
conventions of simulators belong to environments.
"""
