"""What turns a model into a running engine: training engines, and the moving of weights from them to inference.

``train`` holds ``TrainEngine`` and its FSDP2 implementation, ``weights`` the syncers. May import everything below
``workers``; a new backend is a module of its own behind the same base class.
"""
