"""Language models on transformers, as training needs them: packed, split over ranks, with experts.

Imports what ``rlinf.models`` may; no process group is made here.
"""
