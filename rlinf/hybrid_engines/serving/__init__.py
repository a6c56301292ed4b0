"""Generation engines that other processes, runs and machines reach over HTTP.

``EngineServer`` serves any ``GenerationEngine``; ``RemoteEngine`` is one that such a server computes for, and
``RoutedEngine`` one that spreads its requests over several (``rollout_backend: server``). All of them keep the same
contract, so a router is a server of a ``RoutedEngine``. May import what is below ``workers``; knows nothing of RL.
"""
