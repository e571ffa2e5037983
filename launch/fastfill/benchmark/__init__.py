"""The paired benchmark: what to run (pure), running it (acting), and what it amounts to (pure).

``grid``, ``arms``, ``schedule``, ``stats``, ``verdict``, ``timings``, ``analyse``, ``questions``, ``gate`` only decide;
``connection``, ``target``, ``restart``, ``servers``, ``load``, ``proven``, ``scoring``, ``run`` and ``journal`` act;
``document``, ``plots`` and ``report`` show.
"""
