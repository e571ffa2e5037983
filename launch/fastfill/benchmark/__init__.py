"""The paired benchmark: what to run (pure), running it (acting), and what it amounts to (pure).

``grid``, ``arms``, ``schedule``, ``stats``, ``verdict`` and ``paired`` only decide; ``load``, ``target``, ``run`` and
``journal`` act; ``document``, ``plots`` and ``report`` show.
"""
